// Objects that no request reaches as they are stored: in a version that is not served, or where an earlier CRD of another scope left them.
import t, { type Test } from "tap";
import { storedVersionsOf } from "../crd.ts";
import { MERGE_PATCH } from "../api-client.ts";
import { decodeStored } from "../control-plane/decode-stored.ts";
import { assertNoTraces, assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { type CrdShape, GROUP, TestKind } from "./crd-fixture.ts";
import { leaveFreeze } from "./left-behind.ts";
import { parallel } from "./parallel.ts";

const cluster = await Cluster.start(t);

const INTEGER = { type: "integer" };
const NARROW = { type: "object", properties: { size: INTEGER } };
const WIDE = { type: "object", properties: { size: INTEGER, extra: INTEGER } };

/** Objects as v1alpha1 and as v1, which is the storage version, and then not served any more. Those of v1 have `spec.extra`. */
async function withUnserved(
  word: string,
  shape: Omit<CrdShape, "storage">,
  spec: object = { size: 3, extra: 7 },
): Promise<TestKind> {
  const kind = new TestKind(word);
  const { api } = cluster;
  await cluster.createCrd(kind, { ...shape, storage: "v1alpha1" });
  await api.create(kind.resource("v1alpha1"), kind.object("old", "v1alpha1"));
  await cluster.setVersions(kind, { ...shape, storage: "v1" });
  const isStored = async (): Promise<boolean> => {
    await api.create(kind.resource("v1"), { ...kind.object("new", "v1"), spec });
    const { v1 } = await cluster.storedAs(kind);
    // The API server may go on storing the version of before for a moment.
    await (v1 === 1 ? undefined : api.delete(kind.resource("v1"), { name: "new", namespace: "default" }));
    return v1 === 1;
  };
  await eventually(isStored, "an object is stored in v1");
  t.same(await specOfNew(kind), [spec]);
  await cluster.setVersions(kind, { ...shape, storage: "v1", unserved: ["v1"] });
  await cluster.waitForVersion(kind, "v1", false);
  return kind;
}

/** The spec of the object that was created in v1, as etcd has it. */
async function specOfNew({ plural }: TestKind): Promise<unknown> {
  const stored = await cluster.controlPlane.stored.storedObjects(GROUP, plural);
  return stored.filter(({ name }) => name === "new").map(({ raw }) => (decodeStored(raw) as { spec: unknown }).spec);
}

const RUNS = [
  ["migrate"],
  ["migrate", "--force"],
  ["migrate", "--dry-run"],
  ["reencrypt", "--assume-config-rolled-out", "--unsafe-settle", "50ms"],
];

parallel(
  "no run writes through a version whose schema lacks fields of a storage version that is not served",
  async (t) => {
    const kind = await withUnserved("narrow", { specSchemas: { v1alpha1: NARROW, v1: WIDE } });
    await leaveFreeze(cluster, kind, `kube-system/ksvm-migrate.${kind.name}`);
    for (const args of RUNS) {
      const { code, stderr } = await cluster.ksvm([...args, kind.name]);
      t.equal(code, 1, args.join(" "));
      t.match(stderr, /v1alpha1"? has another schema, so that each write could drop fields; .*v1/, args.join(" "));
      t.same(await specOfNew(kind), [{ size: 3, extra: 7 }], args.join(" "));
    }
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
    const plan = await cluster.ksvm(["plan", "-o", "json", "--crds-only"]);
    const { items } = JSON.parse(plan.stdout) as { items: readonly { name: string; action: string }[] };
    t.match(
      items.find(({ name }) => name === kind.name),
      { action: "blocked", note: /v1alpha1 has another schema/, help: /^serve v1 until it is migrated: kubectl patch/ },
      "the plan of all CRDs says so",
    );
    await assertNoTraces(t, cluster, kind);
  },
);

parallel(
  "no run writes through a version that would empty maps and drop or replace null of the storage version",
  async (t) => {
    const steps = { type: "array", items: { type: "string", default: "none" } };
    const properties = { size: INTEGER, labels: { type: "object" }, hint: { type: "string" }, steps };
    const labels = { type: "object", additionalProperties: { type: "string" } };
    const text = { type: "string", nullable: true };
    const wide = { ...properties, labels, hint: text, steps: { type: "array", items: text } };
    const specSchemas = { v1alpha1: { type: "object", properties }, v1: { type: "object", properties: wide } };
    const spec = { size: 3, labels: { app: "a" }, hint: null, steps: ["b", null] };
    const kind = await withUnserved("maps", { specSchemas }, spec);
    for (const args of RUNS) {
      const { code, stderr } = await cluster.ksvm([...args, kind.name]);
      t.equal(code, 1, args.join(" "));
      t.match(stderr, /v1alpha1"? has another schema, so that each write could drop fields; .*v1/);
    }
    t.same(await specOfNew(kind), [spec]);
    // The control: this is what the API server does to them.
    await cluster.api.patch(
      kind.resource("v1alpha1"),
      { name: "new", namespace: "default" },
      { type: MERGE_PATCH, body: { metadata: { labels: { a: "b" } } } },
    );
    t.same(await specOfNew(kind), [{ size: 3, labels: {}, steps: ["b", "none"] }]);
  },
);

parallel("migrate goes through a served version that has the schema of the storage version", async (t) => {
  const kind = await withUnserved("wide", { specSchema: WIDE });
  const { code, stderr } = await cluster.migrate([kind.name]);
  t.equal(code, 0, stderr);
  t.same(await specOfNew(kind), [{ size: 3, extra: 7 }]);
  t.same(await cluster.storedAs(kind), { v1: 2 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
});

/**
 * An object that an earlier CRD of the other scope left. The test writes it to etcd, in place of a CRD whose finalizer is removed by hand:
 * whether the API server has deleted the objects by then is a race.
 */
async function leave(kind: TestKind, name: string, namespace?: string): Promise<void> {
  const metadata = { name, namespace, uid: `left-${name}`, generation: 1, creationTimestamp: "2026-01-01T00:00:00Z" };
  const key = ["/registry", GROUP, kind.plural, namespace, name].filter((part) => part !== undefined).join("/");
  await cluster.controlPlane.stored.writeKey(key, JSON.stringify({ ...kind.object(name, "v1alpha1"), metadata }));
}

/** A stale CRD of one object, beside which an earlier CRD of the other scope left one, by default of another name. */
async function withLeftover(scope: "Cluster" | "Namespaced", name = "left"): Promise<TestKind> {
  const kind = new TestKind("scope");
  const shape: Partial<CrdShape> = { scope };
  await cluster.createCrd(kind, { ...shape, storage: "v1alpha1" });
  const metadata = scope === "Cluster" ? { name: "real" } : { name: "real", namespace: "default" };
  await cluster.api.create(kind.resource("v1alpha1"), { ...kind.object("real", "v1alpha1"), metadata });
  await leave(kind, name, scope === "Cluster" ? "default" : undefined);
  // From a change of its versions on, the API server has the objects of a CRD from etcd, as after a restart.
  await cluster.setVersions(kind, { ...shape, storage: "v1" });
  const seen = async (): Promise<boolean> => {
    const { items } = await cluster.api.listMetadata(kind.resource("v1"), { limit: 500 });
    return items.some(({ metadata: { uid } }) => uid === `left-${name}`);
  };
  await eventually(seen, "a list shows what was left");
  return kind;
}

/** No request reaches such an object, so the run ends, and the other one is migrated. */
async function assertRefused(t: Test, kind: TestKind, reason: RegExp): Promise<void> {
  const { code, stderr } = await cluster.migrate([kind.name, "--max-idle", "20s"]);
  t.equal(code, 1, stderr);
  t.match(stderr, reason);
  t.equal((await cluster.storedAs(kind))["v1alpha1"], 1);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  await assertUnfrozen(t, cluster, kind);
}

parallel("an object that an earlier, namespaced CRD left keeps a run from pruning", async (t) => {
  await assertRefused(t, await withLeftover("Cluster"), /namespaces\/default\/.* answered 404/);
});

parallel("an object that an earlier, cluster-scoped CRD left keeps a run from pruning", async (t) => {
  await assertRefused(t, await withLeftover("Namespaced"), /Namespace parameter required|left: /);
});

parallel("so it does beside one of the same name in a namespace", async (t) => {
  await assertRefused(t, await withLeftover("Namespaced", "real"), /Namespace parameter required|real: /);
});
