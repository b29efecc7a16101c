import tap from "tap";
import { storageVersionHashOf } from "../../../src/api/crd.ts";
import { UNKNOWN_HASH } from "../../../src/api/migration.ts";
import { CRD_ANNOTATION } from "../../../src/api/names.ts";
import { CRD_PREFIX } from "../model/crd-registry.ts";
import { SimEtcd } from "../model/etcd.ts";
import type { ModelObject } from "../model/model-object.ts";
import type { Action, Plan } from "../plan.ts";
import { simulate } from "../simulate.ts";
import type { World } from "../world/world.ts";
import { StorageStateCheck } from "./storage-state-check.ts";
import { STATES_PREFIX } from "./user-words.ts";

const NAME = "widgets.sim.example.com";
const OLD = storageVersionHashOf("sim.example.com", "v1alpha1", "Widget");
const CURRENT = storageVersionHashOf("sim.example.com", "v1", "Widget");
const SECOND_MS = 1_000;

const ACTIONS: readonly (Action & Readonly<Record<string, unknown>>)[] = [
  { at: 10, do: "start", program: 0 },
  { at: 10, do: "createMigrations", writes: 2, kind: 0, count: 1, of: "kind", how: "low" },
  { at: 500, do: "slow", server: 1, ms: 120_000, holdMs: 60_000, writes: 10 },
  { at: 2_000, do: "flip", kind: 0, to: "v1", writes: 10 },
  { at: 145_000, do: "foreignPrune", kind: 0, isCareful: false },
];

const PLAN: Plan = {
  // Users put things right at the end: they delete the migration that they made, and the StorageState with it.
  seed: 5_000_102,
  servers: 2,
  access: "sampled",
  kinds: [{ plural: "widgets", versions: ["v1alpha1", "v1beta1", "v1"], createdIn: "v1beta1", objects: 1 }],
  programs: [{ run: "controller", kind: 0, force: false, trigger: "on" }],
  writeEveryMs: 59_000,
  ageMs: 120_000,
  actions: ACTIONS,
};

await tap.test(
  "StorageStateCheck holds nobody to what a user has deleted, which another client had pruned",
  async (t) => {
    const { trace, violations } = await simulate(PLAN);
    t.ok(trace.some((line) => line.includes("prunes to v1: 200")));
    t.same(violations, []);
  },
);

/** What a StorageState says, and of which CRD (`uid/generation/storedVersions`). */
interface Said {
  readonly record?: string;
  readonly hashes: readonly string[];
}

/**
 * What the check says where a StorageState is there when a CRD is created again. Its storage version changes, an object is left in the old one,
 * another client prunes storedVersions, and then ksvm writes that every object is in the new one.
 * @param lateMs after the prune an object is written in the old version, where that is given
 * @param editor who writes `Unknown` into the StorageState after that
 */
function judged(before: Said, lateMs?: number, editor: "user" | "ksvm" = "ksvm"): readonly string[] {
  const etcd = new SimEtcd();
  const violations: string[] = [];
  const schedule = { now: 0 };
  let isKsvm = false;
  const world = { cluster: { etcd }, schedule, violate: (violation: string) => void violations.push(violation) };
  void new StorageStateCheck(world as unknown as World, () => isKsvm);
  const put = (key: string, object: object): void => {
    etcd.put(key, { object: object as ModelObject }, etcd.get(key)?.modRevision ?? 0);
    schedule.now += SECOND_MS;
  };
  const crd = (uid: string, generation: number, storage: string, storedVersions: readonly string[]): void =>
    put(`${CRD_PREFIX}${NAME}`, {
      metadata: { name: NAME, uid, generation },
      spec: {
        group: "sim.example.com",
        names: { plural: "widgets", kind: "Widget" },
        versions: ["v1alpha1", "v1"].map((name) => ({ name, served: true, storage: name === storage })),
      },
      status: { storedVersions },
    });
  const state = ({ record, hashes }: Said, by: "user" | "ksvm" = "ksvm"): void => {
    isKsvm = by === "ksvm";
    put(`${STATES_PREFIX}${NAME}`, {
      metadata: { name: NAME, annotations: record === undefined ? {} : { [CRD_ANNOTATION]: record } },
      spec: { resource: { group: "sim.example.com", resource: "widgets" } },
      status: { currentStorageVersionHash: hashes.at(-1), persistedStorageVersionHashes: hashes },
    });
    isKsvm = false;
  };
  const object = (): void =>
    put("/registry/sim.example.com/widgets/default/a", { apiVersion: "sim.example.com/v1alpha1", metadata: {} });
  crd("earlier", 1, "v1alpha1", ["v1alpha1"]);
  state({ record: "earlier/1/v1alpha1", hashes: [OLD] });
  crd("again", 1, "v1alpha1", ["v1alpha1"]);
  object();
  crd("again", 2, "v1", ["v1alpha1", "v1"]);
  state(before);
  crd("again", 2, "v1", ["v1"]);
  if (lateMs !== undefined) {
    schedule.now += lateMs;
    object();
  }
  state({ ...(editor === "user" ? before : { record: "again/2/v1" }), hashes: [UNKNOWN_HASH] }, editor);
  state({ record: "again/2/v1", hashes: [CURRENT] });
  return violations;
}

/** What the StorageState says of the CRD that was there before. */
const OF_EARLIER: Said = { record: "earlier/1/v1alpha1", hashes: [OLD] };

await tap.test("StorageStateCheck expects nothing of what a StorageState says of an earlier CRD of the name", (t) => {
  t.same(judged(OF_EARLIER), []);
  t.end();
});

await tap.test(
  "StorageStateCheck finds a StorageState that lacks what ksvm knew before another client pruned it",
  (t) => {
    const isMissing = [/says at revision \d+ that objects are stored as \[\S+\], and \S+ is v1alpha1/];
    t.match(judged({ record: "again/1/v1alpha1", hashes: [OLD] }), isMissing, "it is of this CRD");
    t.match(
      judged({ hashes: [OLD] }),
      isMissing,
      "it does not say of which CRD it is, so ksvm takes it for one of this CRD",
    );
    const begun = [UNKNOWN_HASH, OLD, CURRENT];
    t.match(judged({ ...OF_EARLIER, hashes: begun }), isMissing, "a leader has begun to write it of this CRD");
    t.match(judged(OF_EARLIER, 70 * SECOND_MS), isMissing, "no write that was under way lands so late");
    t.end();
  },
);

await tap.test(
  "StorageStateCheck holds nobody to what a user has written Unknown over, which another client had pruned",
  (t) => {
    t.same(judged({ record: "again/2/v1alpha1,v1", hashes: [OLD, CURRENT] }, undefined, "user"), []);
    t.end();
  },
);
