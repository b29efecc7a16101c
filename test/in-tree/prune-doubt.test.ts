import t from "tap";
import type { CrdCondition, CustomResourceDefinition } from "../../src/api/crd.ts";
import { conditionsWithoutDoubt, pruneDoubtOf } from "../../src/in-tree/prune-doubt.ts";
import { crdWith } from "../api/crd-with.ts";

function crdSaying(condition: Partial<CrdCondition>, storedVersions = ["v2"]): CustomResourceDefinition {
  const status = { storedVersions, conditions: [{ type: "StorageMigrating", status: "False", ...condition }] };
  return { ...crdWith(), status };
}

const UPDATED = "The migration has succeeded and the stored versions have been updated";
const CHANGED =
  "The migration has succeeded but the stored versions have not been updated due to a generation mismatch";

await t.test("pruneDoubtOf() believes a success on an unchanged CRD, and no other end", async (t) => {
  t.equal(pruneDoubtOf(crdSaying({ reason: "MigrationSucceeded", message: UPDATED })), undefined);
  t.match(pruneDoubtOf(crdSaying({ status: "True", reason: "MigrationRunning" })), /one began, which prunes/);
  t.match(pruneDoubtOf(crdSaying({ reason: "MigrationFailed" })), /did not succeed/);
  t.match(pruneDoubtOf(crdSaying({})), /did not succeed/, "a reason that is not known proves nothing");
  t.match(pruneDoubtOf(crdSaying({ reason: "MigrationSucceeded", message: CHANGED })), /was changed/);
});

await t.test(
  "pruneDoubtOf() has nothing to say of a CRD without the condition, or whose versions are all listed",
  async (t) => {
    t.equal(pruneDoubtOf(crdWith({ storedVersions: ["v2"] })), undefined);
    t.equal(pruneDoubtOf(crdSaying({ type: "Established", status: "True" })), undefined);
    t.equal(pruneDoubtOf(crdSaying({ reason: "MigrationFailed" }, ["v1", "v2"])), undefined);
  },
);

await t.test(
  "conditionsWithoutDoubt() takes off the end of a migration that did not succeed, and nothing else",
  async (t) => {
    const established = { type: "Established", status: "True" };
    const beside = (condition: Partial<CrdCondition>): ReturnType<typeof conditionsWithoutDoubt> => {
      const crd = crdSaying(condition, ["v1", "v2"]);
      const conditions = [established, ...(crd.status?.conditions ?? [])];
      return conditionsWithoutDoubt({ ...crd, status: { ...crd.status, conditions } });
    };
    t.strictSame(beside({ reason: "MigrationFailed" }), [established], "it casts doubt on the prune that comes now");
    t.strictSame(beside({ reason: "MigrationSucceeded", message: CHANGED }), [established]);
    t.equal(beside({ reason: "MigrationSucceeded", message: UPDATED }), undefined);
    t.equal(beside({ status: "True", reason: "MigrationRunning" }), undefined, "that migration may run");
    t.equal(conditionsWithoutDoubt(crdWith()), undefined);
  },
);
