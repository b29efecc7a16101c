import t, { type Test } from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { type CrdShape, GROUP, TestKind } from "./crd-fixture.ts";
import { parallel } from "./parallel.ts";

const cluster = await Cluster.start(t);
const { api, controlPlane } = cluster;

/**
 * An object that an earlier CRD of the other scope left. The test writes it to etcd, in place of a CRD whose finalizer is removed by hand:
 * whether the API server has deleted the objects by then is a race.
 */
async function leave(kind: TestKind, name: string, namespace?: string): Promise<void> {
  const metadata = { name, namespace, uid: `left-${name}`, generation: 1, creationTimestamp: "2026-01-01T00:00:00Z" };
  const key = ["/registry", GROUP, kind.plural, namespace, name].filter((part) => part !== undefined).join("/");
  await controlPlane.stored.writeKey(key, JSON.stringify({ ...kind.object(name, "v1alpha1"), metadata }));
}

/** A stale CRD of one object, beside which an earlier CRD of the other scope left one, by default of another name. */
async function withLeftover(scope: "Cluster" | "Namespaced", name = "left"): Promise<TestKind> {
  const kind = new TestKind("scope");
  const shape: Partial<CrdShape> = { scope };
  await cluster.createCrd(kind, { ...shape, storage: "v1alpha1" });
  const metadata = scope === "Cluster" ? { name: "real" } : { name: "real", namespace: "default" };
  await api.create(kind.resource("v1alpha1"), { ...kind.object("real", "v1alpha1"), metadata });
  await leave(kind, name, scope === "Cluster" ? "default" : undefined);
  // From a change of its versions on, the API server has the objects of a CRD from etcd, as after a restart.
  await cluster.setVersions(kind, { ...shape, storage: "v1" });
  const seen = async (): Promise<boolean> => {
    const { items } = await api.listMetadata(kind.resource("v1"), { limit: 500 });
    return items.some(({ metadata: { uid } }) => uid === `left-${name}`);
  };
  await eventually(seen, "a list shows what was left");
  return kind;
}

async function assertRefused(t: Test, kind: TestKind, reason: RegExp): Promise<void> {
  const { code, stdout } = await cluster.migrate([kind.name, "-o", "json", "--max-idle", "20s"]);
  t.equal(code, 3, stdout);
  t.match(stdout, reason);
  t.same(await cluster.storedAs(kind), { v1alpha1: 1, v1: 1 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  await assertUnfrozen(t, cluster, kind);
}

parallel("an object that an earlier, namespaced CRD left is named, and nothing is pruned", async (t) => {
  await assertRefused(
    t,
    await withLeftover("Cluster"),
    /left it in namespace \\"default\\", and the CRD is cluster-scoped/,
  );
});

/** Runs that freeze nothing: what they say of the objects, and that the one that was left is named in time. */
async function assertNamed(t: Test, kind: TestKind, reason: RegExp): Promise<void> {
  const flags = ["--settle", "1s", "-o", "json", "--max-idle", "20s"];
  for (const args of [
    ["migrate", "--dry-run", "-o", "json"],
    ["reencrypt", "--assume-config-rolled-out", ...flags],
  ]) {
    const { code, stderr, stdout } = await cluster.ksvm([...args, kind.name]);
    t.equal(code, 3, `${args.join(" ")}: ${stdout} ${stderr}`);
    t.match(stdout, reason, args.join(" "));
  }
}

parallel("a run without a freeze names an object that an earlier, namespaced CRD left", async (t) => {
  await assertNamed(
    t,
    await withLeftover("Cluster"),
    /left it in namespace \\"default\\", and the CRD is cluster-scoped/,
  );
});
