import tap from "tap";
import { parseMigration } from "../../src/api/parse-migration.ts";
import { prune } from "../../src/json/json-projection.ts";
import { MIGRATION_FIELDS } from "../../src/migrations/migration-fields.ts";
import { companionManifest, Companions } from "../../src/serve-in-tree/companions.ts";
import { companionNameOf, nextStepOf } from "../../src/serve-in-tree/next-step.ts";
import { inTreeMigration } from "./in-tree-migration.ts";

const RUNNING = inTreeMigration({ conditions: ["Running=True"], resourceVersion: "5" });
const IN_TREE = { group: "storagemigration.k8s.io", version: "v1beta1", resource: "storageversionmigrations" };
const WIDGETS = { group: "example.com", version: "v1", resource: "widgets" };

/** What the feed tells of a companion that the service created. */
function toldOf(isCustom: boolean, status?: object) {
  const manifest = companionManifest({ migration: RUNNING, inTree: IN_TREE, resource: WIDGETS, isCustom });
  const metadata = { ...manifest.metadata, uid: "uid", resourceVersion: "9", generation: 1 };
  const { object } = parseMigration(prune({ ...manifest, metadata, status }, MIGRATION_FIELDS));
  if (object === undefined) throw new Error("it cannot be read");
  return object;
}

function stepAfter(isCustom: boolean, reason: string) {
  const conditions = [{ type: "Succeeded", status: "True", reason }];
  const companions = new Companions();
  companions.apply({ type: "listed", migrations: [toldOf(isCustom, { conditions })] });
  return nextStepOf(RUNNING, companions.byName.get(companionNameOf(RUNNING)))?.type;
}

for (const isCustom of [true, false]) {
  const what = isCustom ? "a CRD" : "a built-in resource";
  await tap.test(`the companion of ${what} is believed as the feed tells of it`, async (t) => {
    t.equal(stepAfter(isCustom, "Migrated"), "end");
  });
  await tap.test(`a companion of ${what} that found nothing to do is not`, async (t) => {
    t.equal(stepAfter(isCustom, "NothingToDo"), "work");
  });
}
