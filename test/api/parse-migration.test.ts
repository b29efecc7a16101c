import { readFileSync } from "node:fs";
import { join } from "node:path";
import tap from "tap";
import { parse } from "yaml";
import type { MigrationStatus } from "../../src/api/migration.ts";
import { parseMigration } from "../../src/api/parse-migration.ts";

const CRD_FILE = join(import.meta.dirname, "../../deploy/base/crds/storageversionmigrations.yaml");

interface Crd {
  readonly spec: {
    readonly versions: readonly [
      { readonly schema: { readonly openAPIV3Schema: { readonly properties: { readonly status: Schema } } } },
    ];
  };
}

interface Schema {
  readonly properties: Readonly<Record<string, unknown>>;
}

/** Every field that the controller writes. */
const STATUS: Required<MigrationStatus> = {
  observedGeneration: 3,
  conditions: [{ type: "Succeeded", status: "True", lastUpdateTime: "2026-01-01T00:00:00Z", reason: "Migrated" }],
  watermark: "100",
  counts: { migrated: 1, skipped: 2, failed: 0, remaining: 0 },
  progress: "3/3",
  queuePosition: 1,
  crd: "6f0d3a52-31a5-4b0c-8a5c-3f8f6a0b9a55/3",
  failures: [{ namespace: "default", name: "a", reason: "rejected" }],
  startTime: "2026-01-01T00:00:00Z",
  completionTime: "2026-01-01T00:01:00Z",
};

await tap.test("parseMigration() loses no field of a status that our CRD has", (t) => {
  const { status } = (parse(readFileSync(CRD_FILE, "utf8")) as Crd).spec.versions[0].schema.openAPIV3Schema.properties;
  t.same(Object.keys(STATUS).toSorted(), Object.keys(status.properties).toSorted());
  const metadata = { name: "a", uid: "u", resourceVersion: "1" };
  const resource = { group: "example.com", version: "v1", resource: "widgets" };
  const parsed = parseMigration({ metadata, spec: { resource }, status: STATUS });
  t.same(parsed.object?.status, STATUS);
  t.same("ignored" in parsed ? parsed.ignored : undefined, []);
  t.end();
});
