import t from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { STORAGE_MIGRATING_CONDITION } from "../../src/api/names.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { APPLY_PATCH, CRDS, MERGE_PATCH } from "../../src/kube/resources.ts";
import { unlessAtLeast } from "../control-plane/features.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";

// What the in-tree controller of 1.36 does beyond pruning after a failure: docs/comparison.md. It applies the status of
// the CRD with one field manager, and apply removes storedVersions where an earlier migration has set it and this one leaves it out.

const IN_TREE = "system:kube-controller-manager";
const NOT_UPDATED =
  "The migration has succeeded but the stored versions have not been updated due to a generation mismatch";

const cluster = await Cluster.start(t, { users: [{ name: IN_TREE, groups: ["system:masters"] }] });
const inTree = cluster.clientFor(IN_TREE);
t.teardown(() => inTree.transport.close());

interface Update {
  readonly status: "True" | "False";
  readonly reason: string;
  readonly message?: string;
  readonly storedVersions?: readonly string[];
}

/** What the controller sends. A denial counts as nothing sent. @returns the versions that are stored afterwards */
async function update(
  kind: TestKind,
  { status, reason, message = "", storedVersions }: Update,
): Promise<readonly string[]> {
  const lastTransitionTime = new Date().toISOString().replace(/\.\d+/, "");
  const condition = { type: STORAGE_MIGRATING_CONDITION, status, reason, message, lastTransitionTime };
  const body = {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: kind.name },
    status: { conditions: [condition], ...(storedVersions === undefined ? {} : { storedVersions }) },
  };
  const options = { subresource: "status", fieldManager: "migration-runner-controller", force: true };
  await inTree.patch(CRDS, kind, { type: APPLY_PATCH, body }, options).catch((error: unknown) => {
    if (!(error instanceof ApiError) || !error.message.includes("ksvm-stored-versions")) throw error;
  });
  return storedVersionsOf(await cluster.crd(kind));
}

/** A CRD of which one migration has succeeded, and whose storage version changed since. */
async function migratedOnce(word: string): Promise<TestKind> {
  const kind = new TestKind(word);
  await cluster.createCrd(kind, { storage: "v1alpha1" });
  await update(kind, { status: "False", reason: "MigrationSucceeded", storedVersions: ["v1alpha1"] });
  const crd = await cluster.setVersions(kind, { storage: "v1" });
  t.same(storedVersionsOf(crd), ["v1alpha1", "v1"]);
  return kind;
}

const BEGINS: Update = { status: "True", reason: "MigrationRunning" };
const ENDS_AFTER_A_CHANGE: Update = { status: "False", reason: "MigrationSucceeded", message: NOT_UPDATED };

await t.test(
  "without the guard a second migration prunes when it begins, and when it ends after a change",
  async (t) => {
    t.same(await update(await migratedOnce("begins"), BEGINS), ["v1"]);
    t.same(await update(await migratedOnce("ends"), ENDS_AFTER_A_CHANGE), ["v1"]);
  },
);

await t.test("with --mode=deny neither removes a version, and a success still does", async (t) => {
  t.equal((await cluster.ksvm(["guard", "enable", "--mode=deny"])).code, 0);
  const probe = await migratedOnce("probe");
  const prune = { type: MERGE_PATCH, body: { status: { storedVersions: ["v1"] } } };
  const isDenied = (): Promise<boolean> =>
    cluster.api.patch(CRDS, probe, prune, { subresource: "status", dryRun: true }).then(
      () => false,
      () => true,
    );
  await eventually(isDenied, "the guard is in force");
  const kept = await migratedOnce("kept");
  t.same(await update(kept, BEGINS), ["v1alpha1", "v1"]);
  if (unlessAtLeast(36, "MutatingAdmissionPolicies are served") === false) {
    const hasBegun = async (): Promise<boolean> => {
      t.same(await update(kept, BEGINS), ["v1alpha1", "v1"]);
      const conditions = (await cluster.crd(kept)).status?.conditions ?? [];
      return conditions.some(({ type, status }) => type === STORAGE_MIGRATING_CONDITION && status === "True");
    };
    await eventually(hasBegun, "the migration begins, with the versions put back");
  }
  t.same(await update(await migratedOnce("held"), ENDS_AFTER_A_CHANGE), ["v1alpha1", "v1"]);
  const kind = await migratedOnce("pruned");
  t.same(await update(kind, { status: "False", reason: "MigrationSucceeded", storedVersions: ["v1"] }), ["v1"]);
});
