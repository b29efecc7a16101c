import tap from "tap";
import { formatOwner } from "../../../src/api/owner.ts";
import type { MigrationEvent } from "../../../src/migrator/events.ts";
import { type EtcdSnapshot, SimEtcd } from "../model/etcd.ts";
import type { ModelObject } from "../model/model-object.ts";
import type { ModelRequest } from "../model/types.ts";
import type { KindPlan } from "../plan.ts";
import type { StartedMigration, Witness } from "../programs/witness.ts";
import { crdNameOf, objectsPrefixOf } from "../world/kinds.ts";
import type { World } from "../world/world.ts";
import { ConversionsCheck } from "./conversions-check.ts";

const KIND: KindPlan = { plural: "widgets", versions: ["v1alpha1", "v1"], createdIn: "v1alpha1", objects: 1 };
const CRD_KEY = `/registry/apiextensions.k8s.io/customresourcedefinitions/${crdNameOf(KIND)}`;
const OBJECT_KEY = `${objectsPrefixOf(KIND)}0`;
const MIGRATING = "ksvm.sigs.k8s.io/migrating";
const OWNER = "ksvm.sigs.k8s.io/migration-owner";

interface CrdState {
  readonly freezer?: string;
  /** When the attempt of the freezer began. */
  readonly since?: string;
  readonly isWebhook?: boolean;
  readonly storedVersions?: readonly string[];
}

/** An etcd with one CRD and one object of it, and what the check says. */
function checked() {
  const etcd = new SimEtcd();
  const violations: string[] = [];
  const schedule = { now: 0 };
  const witnesses: ((started: StartedMigration) => Witness)[] = [];
  let writer = "user";
  const follower: { sent?: (request: ModelRequest) => void } = {};
  const world = {
    cluster: { etcd, onRequest: (told: (request: ModelRequest) => void) => void (follower.sent = told) },
    plan: { kinds: [KIND] },
    schedule,
    witnesses,
    violate: (violation: string) => void violations.push(violation),
  } as unknown as World;
  const put = (by: string, key: string, object: object): void => {
    writer = by;
    schedule.now += 1_000;
    etcd.put(key, { object: object as ModelObject }, etcd.get(key)?.modRevision ?? 0);
  };
  const crd = (by: string, state: CrdState): void => {
    const { freezer, isWebhook = false, since = "", storedVersions = KIND.versions } = state;
    const owner = { lease: "kube-storage-migration/ksvm-migrate.widgets", identity: `${freezer}_1/uid/1`, since };
    const annotations = freezer === undefined ? {} : { [MIGRATING]: "true", [OWNER]: formatOwner(owner) };
    const spec = { conversion: { strategy: isWebhook ? "Webhook" : "None" } };
    put(by, CRD_KEY, { metadata: { name: crdNameOf(KIND), uid: "1", annotations }, spec, status: { storedVersions } });
  };
  const object = (by: string, version: string, isConverted = false): void => {
    const apiVersion = `sim.example.com/${version}`;
    const path = `/apis/${apiVersion}/namespaces/default/widgets/widgets-0`;
    follower.sent?.({ method: "PATCH", path, query: new URLSearchParams(), headers: {}, body: "", user: by });
    put(by, OBJECT_KEY, { apiVersion, metadata: { uid: "2" }, spec: isConverted ? { converted: apiVersion } : {} });
  };
  const start = (name: string): ((type: "converged" | "startingAgain") => void) => {
    schedule.now += 1_000;
    const begun = witnesses.map((begin) => begin({ name, kind: KIND, force: false }));
    return (type) => {
      schedule.now += 1_000;
      for (const witness of begun) witness.told({ type } as MigrationEvent);
    };
  };
  crd("user", {});
  object("user", "v1alpha1");
  const check = new ConversionsCheck(world, () => writer);
  const restore = (backup: EtcdSnapshot): void => {
    schedule.now += 1_000;
    etcd.restore(backup);
  };
  return { check, crd, etcd, object, restore, start, violations };
}

await tap.test(
  "a run that begins after a change of the conversion stores objects as they are converted by now",
  (t) => {
    const { crd, object, start, violations } = checked();
    crd("user", { isWebhook: true });
    start("ksvm-0-0");
    object("ksvm-0-0", "v1", true);
    t.same(violations, []);
    object("user", "v1alpha1");
    object("ksvm-0-0", "v1");
    t.match(violations, [/ksvm-0-0 stored \S+ as sim\S+v1, not as the webhook converts it/]);
    t.end();
  },
);

await tap.test("so does a run of a controller that puts its freeze on after that", (t) => {
  const { crd, object, violations } = checked();
  crd("ksvm-1-0", { freezer: "ksvm-1-0" });
  crd("user", { freezer: "ksvm-1-0", isWebhook: true });
  object("ksvm-1-0", "v1");
  t.same(violations, [], "the conversion changed while it went on");
  object("user", "v1alpha1");
  crd("ksvm-1-0", { isWebhook: true });
  crd("ksvm-1-0", { freezer: "ksvm-1-0", isWebhook: true });
  object("ksvm-1-0", "v1", true);
  object("user", "v1alpha1");
  t.same(violations, []);
  object("ksvm-1-0", "v1");
  t.match(violations, [/ksvm-1-0 stored \S+ as sim\S+v1, not as the webhook converts it/]);
  t.end();
});

await tap.test("so does a run that began again after a change, once API servers have converged", (t) => {
  const { crd, object, start, violations } = checked();
  const tell = start("ksvm-0-0");
  tell("converged");
  crd("user", { isWebhook: true });
  tell("startingAgain");
  object("ksvm-0-0", "v1");
  t.same(violations, [], "that was under way");
  tell("converged");
  object("user", "v1alpha1");
  object("ksvm-0-0", "v1");
  t.match(violations, [/not as the webhook converts it/]);
  t.end();
});

await tap.test("no run prunes where the conversion changed after it began to rest on it", (t) => {
  const { crd, object, start, violations } = checked();
  const tell = start("ksvm-0-0");
  tell("converged");
  crd("ksvm-0-0", { storedVersions: ["v1"] });
  t.same(violations, []);
  crd("user", { isWebhook: true });
  crd("ksvm-0-0", { isWebhook: true, storedVersions: [] });
  t.match(violations, [/ksvm-0-0 pruned widgets\S+, and its conversion changed after API servers converged/]);
  crd("user", { isWebhook: true });
  crd("ksvm-1-0", { isWebhook: true, freezer: "ksvm-1-0" });
  object("ksvm-1-0", "v1", true);
  crd("ksvm-1-0", { isWebhook: true, freezer: "ksvm-1-0", storedVersions: ["v1"] });
  t.equal(violations.length, 1);
  crd("user", { freezer: "ksvm-1-0" });
  crd("ksvm-1-0", { freezer: "ksvm-1-0", storedVersions: ["v1"] });
  t.match(violations.slice(1), [/ksvm-1-0 pruned widgets/], "a controller rests on it once it writes objects");
  t.end();
});

await tap.test("a restore of etcd changes the conversion only where the backup has another one", (t) => {
  for (const isOther of [false, true]) {
    const { crd, etcd, restore, start, violations } = checked();
    const first = etcd.snapshot();
    crd("user", { isWebhook: true });
    const second = etcd.snapshot();
    start("ksvm-0-0")("converged");
    restore(isOther ? first : second);
    crd("ksvm-0-0", { isWebhook: !isOther, storedVersions: ["v1"] });
    t.equal(violations.length, isOther ? 1 : 0, violations.join());
  }
  t.end();
});

await tap.test(
  "an attempt of a controller that takes over the freeze of the one before it rests on what it saw itself",
  (t) => {
    for (const since of ["", "later"]) {
      const { crd, object, violations } = checked();
      crd("ksvm-1-0", { freezer: "ksvm-1-0" });
      object("ksvm-1-0", "v1");
      crd("user", { freezer: "ksvm-1-0", isWebhook: true });
      crd("ksvm-1-0", { freezer: "ksvm-1-0", isWebhook: true, since });
      object("user", "v1alpha1");
      object("ksvm-1-0", "v1", true);
      crd("ksvm-1-0", { freezer: "ksvm-1-0", isWebhook: true, since, storedVersions: ["v1"] });
      t.equal(violations.length, since === "" ? 1 : 0, since);
    }
    t.end();
  },
);
