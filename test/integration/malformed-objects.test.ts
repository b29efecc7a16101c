import { randomInt } from "node:crypto";
import t from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { isFinished, type StorageState, type StorageVersionMigration } from "../../src/api/migration.ts";
import { parseMigration } from "../../src/api/parse-migration.ts";
import {
  collectionPath,
  CRDS,
  JSON_PATCH,
  MIGRATIONS,
  objectPath,
  type Resource,
  STORAGE_STATES,
} from "../../src/kube/resources.ts";
import { mutated } from "../api/json-mutations.ts";
import { randomFrom } from "../chaos/random.ts";
import { Cluster, eventually } from "./cluster.ts";
import { installSystem } from "./controller-fixture.ts";
import { TestKind } from "./crd-fixture.ts";
import { freePort, ONLY_CUSTOM, spawnController, untilReady } from "./replica.ts";

const seed = Number(process.env["SEED"] ?? randomInt(2 ** 31));
console.error(`seed: SEED=${seed}`);
const random = randomFrom(seed);
const cluster = await Cluster.start(t);
const { api } = cluster;
const COUNT = 200;
const EDITS = 1_000;
const ANYTHING = { type: "object", "x-kubernetes-preserve-unknown-fields": true };
const SPEC = { resource: { group: "example.com", version: "v1", resource: "nothings" }, suspend: false };
const STATUS = {
  conditions: [{ type: "Running", status: "True", lastUpdateTime: "2026-01-01T00:00:00Z", reason: "a", message: "b" }],
  counts: { migrated: 1, skipped: 2, failed: 3 },
  progress: "1/2",
  failures: [{ name: "a", reason: "b" }],
};

/** Any body passes, as under the CRD of another project that was there before. */
async function acceptAnything({ group, resource }: Resource): Promise<void> {
  const path = "/spec/versions/0/schema/openAPIV3Schema";
  const body = [{ op: "replace", path, value: ANYTHING }];
  await api.patch(CRDS, { name: `${resource}.${group}` }, { type: JSON_PATCH, body });
}

/** Sends a request, which the API server may refuse: not everything is JSON that it takes. */
async function tried(method: "POST" | "PATCH" | "DELETE", path: string, body?: unknown): Promise<boolean> {
  const { status } = await cluster.controlPlane.request(path, { method, body });
  return status < 300;
}

/** A JSON value without what no API server takes: JavaScript's own oddities, and texts of a hundred kilobytes. */
function small(value: unknown): unknown {
  return JSON.parse((JSON.stringify(value) ?? "{}").replaceAll(/x{1000,}/g, "xxx")) as unknown;
}

async function createMalformed(resource: Resource, kind: string, name: string): Promise<boolean> {
  const document = mutated(random, { spec: SPEC, status: STATUS }) as { spec?: unknown; status?: unknown } | null;
  const { spec, status } = (small(document) ?? {}) as { spec?: unknown; status?: unknown };
  const object = { apiVersion: "migration.k8s.io/v1alpha1", kind, metadata: { name }, spec };
  const created = await tried("POST", collectionPath(resource), object);
  return created && (await tried("PATCH", `${objectPath(resource, { name })}/status`, { status }), true);
}

async function inParallel(work: readonly (() => Promise<unknown>)[]): Promise<void> {
  const queue = work.values();
  const worker = async (): Promise<void> => {
    for (const one of queue) await one();
  };
  await Promise.all(Array.from({ length: 8 }, worker));
}

await installSystem(cluster);
await acceptAnything(MIGRATIONS);
await acceptAnything(STORAGE_STATES);
const isAccepting = async (): Promise<boolean> => {
  const object = {
    apiVersion: "migration.k8s.io/v1alpha1",
    kind: "StorageVersionMigration",
    metadata: { name: "bare" },
  };
  return tried("POST", collectionPath(MIGRATIONS), object);
};
await eventually(isAccepting, "the API server takes anything");
const kind = new TestKind("beside");
await cluster.createStale(kind, 20);

await t.test(
  "one process with all parts outlives hundreds of malformed objects, names each once, and migrates what is healthy",
  async (t) => {
    const names = Array.from({ length: COUNT }, (_, index) => `malformed-${index}`);
    await inParallel(names.map((name) => () => createMalformed(MIGRATIONS, "StorageVersionMigration", name)));
    // The StorageState of the healthy resource is malformed, too.
    await tried("POST", collectionPath(STORAGE_STATES), {
      apiVersion: "migration.k8s.io/v1alpha1",
      kind: "StorageState",
      metadata: { name: kind.name, annotations: { "ksvm.sigs.k8s.io/crd": "../../\u001b[31m" } },
      spec: "nothing",
    });
    const path = `${objectPath(STORAGE_STATES, { name: kind.name })}/status`;
    const status = {
      persistedStorageVersionHashes: { 0: "a" },
      currentStorageVersionHash: ["b"],
      lastHeartbeatTime: 5,
    };
    t.ok(await tried("PATCH", path, { status }), "a malformed StorageState is there");
    await inParallel(names.map((name) => () => createMalformed(STORAGE_STATES, "StorageState", `${name}.example.com`)));

    const replica = await spawnController(t, cluster, { webhookPort: await freePort(), flags: ONLY_CUSTOM });
    await untilReady(replica);
    const isPruned = async (): Promise<boolean> => storedVersionsOf(await cluster.crd(kind)).join() === "v1";
    await eventually(isPruned, `the healthy resource is migrated:\n${replica.log().slice(-3_000)}`, 150_000);
    t.same(await cluster.storedAs(kind), { v1: 20 });
    const isCurrent = async (): Promise<boolean> => {
      const { status: now } = await api.get<StorageState>(STORAGE_STATES, { name: kind.name });
      return Array.isArray(now?.persistedStorageVersionHashes) && now.persistedStorageVersionHashes.length === 1;
    };
    await eventually(isCurrent, "the trigger has written its StorageState again");

    const all = await api.list<unknown>(MIGRATIONS);
    const unreadable = all.flatMap((value) => parseMigration(value).unreadable?.name ?? []);
    t.ok(unreadable.length > 20, `${unreadable.length} of ${all.length} migrations cannot be read`);
    const before = Number(/^process_resident_memory_bytes (\S+)$/m.exec((await replica.health("/metrics")).text)?.[1]);
    const edits = Array.from({ length: EDITS }, (_, index) => () => {
      const name = unreadable[index % unreadable.length] ?? "";
      return tried("PATCH", objectPath(MIGRATIONS, { name }), { metadata: { labels: { edit: String(index) } } });
    });
    await inParallel(edits);
    // What comes after the edits in the watch: the controller has seen them all.
    const last = await api.create<StorageVersionMigration>(MIGRATIONS, {
      apiVersion: "migration.k8s.io/v1alpha1",
      kind: "StorageVersionMigration",
      metadata: { name: "last" },
      spec: { resource: { group: "example.com", version: "v1", resource: kind.plural } },
    });
    const isLastDone = async (): Promise<boolean> =>
      isFinished(await api.get<StorageVersionMigration>(MIGRATIONS, last.metadata));
    await eventually(isLastDone, "a migration that comes later has its turn", 150_000);
    const after = Number(/^process_resident_memory_bytes (\S+)$/m.exec((await replica.health("/metrics")).text)?.[1]);
    t.comment(`${EDITS} edits: from ${before / 2 ** 20} to ${after / 2 ** 20} MiB`);
    t.ok(after - before < 64 * 2 ** 20, "memory does not grow with each event");

    const lines = replica
      .log()
      .split("\n")
      .filter((line) => line.includes("Left a StorageVersionMigration out"));
    const told = lines.map((line) => (JSON.parse(line) as { migration: string }).migration);
    t.same(told.toSorted(), unreadable.toSorted(), "each is named once");
    t.equal((await replica.health("/livez")).status, 200);
    t.equal((await replica.health("/readyz")).status, 200, "the webhook answers");

    await t.test("commands name what cannot be read", async (t) => {
      const shown = await cluster.ksvm(["status"]);
      t.equal(shown.code, 0, shown.stderr);
      t.notMatch(shown.stdout.replaceAll("\n", ""), /\p{Cc}/u);
      t.equal(shown.stdout.match(/^left out migrations\//gm)?.length, unreadable.length);
      t.equal((await cluster.ksvm(["plan"])).code, 0);
    });

    await t.test("they are deleted, and nothing remembers them", async (t) => {
      await inParallel(unreadable.map((name) => () => tried("DELETE", objectPath(MIGRATIONS, { name }))));
      const again = new TestKind("again");
      await cluster.createStale(again, 5);
      const isAgainPruned = async (): Promise<boolean> => storedVersionsOf(await cluster.crd(again)).join() === "v1";
      await eventually(isAgainPruned, `another resource is migrated:\n${replica.log().slice(-3_000)}`, 150_000);
      t.equal((await replica.health("/livez")).status, 200);
      t.notMatch(replica.log(), /TypeError|RangeError|URIError/);
    });
  },
);
