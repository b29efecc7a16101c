import { readFileSync } from "node:fs";
import { join } from "node:path";
import tap from "tap";
import { parse } from "yaml";
import { isShownToKstatus, withKstatus } from "../../src/api/kstatus.ts";
import {
  MIGRATION_STATES,
  type MigrationCondition,
  type MigrationStatus,
  type StorageVersionMigration,
} from "../../src/api/migration.ts";
import { REENCRYPT_ANNOTATION } from "../../src/api/names.ts";
import { parseMigration } from "../../src/api/parse-migration.ts";
import {
  asksForReencryption,
  configDigestOf,
  reencryptAnnotation,
  reencryptionWishOf,
} from "../../src/api/reencryption.ts";

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
  counts: { migrated: 1, skipped: 2, failed: 0, remaining: 0 },
  progress: "3/3",
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

const TIME = "2026-01-01T00:00:00Z";

function condition(type: MigrationCondition["type"], more: Partial<MigrationCondition> = {}): MigrationCondition {
  return { type, status: "True", reason: "R", message: "m", lastUpdateTime: TIME, ...more };
}

function migrationWith(status: MigrationStatus | undefined, generation?: number): StorageVersionMigration {
  return { metadata: { generation }, status } as StorageVersionMigration;
}

const STANDS_FOR = {
  Pending: ["Reconciling"],
  Running: ["Reconciling"],
  Waiting: ["Reconciling"],
  Suspended: ["Reconciling"],
  Failed: ["Stalled"],
  Succeeded: [],
} as const;

for (const state of MIGRATION_STATES) {
  const expected = STANDS_FOR[state];
  await tap.test(`withKstatus() adds ${expected.join() || "nothing"} to ${state}, in its words`, async (t) => {
    const own = [condition("Pending", { status: "False" }), condition(state)].slice(state === "Pending" ? 1 : 0);
    const shown = withKstatus(own);
    t.same(shown, [...own, ...expected.map((type) => condition(type))]);
    t.same(withKstatus(shown), shown, "once");
    t.ok(isShownToKstatus(migrationWith({ conditions: shown })));
    t.equal(isShownToKstatus(migrationWith({ conditions: own })), state === "Succeeded");
  });
}

await tap.test("withKstatus() takes away what does not apply any more, whatever left it there", async (t) => {
  const left = [condition("Reconciling"), condition("Stalled", { status: "False" }), condition("Succeeded")];
  t.same(withKstatus(left), [condition("Succeeded")]);
  t.notOk(isShownToKstatus(migrationWith({ conditions: left })));
  t.same(withKstatus([condition("Reconciling"), condition("Failed")]), [condition("Failed"), condition("Stalled")]);
});

await tap.test(
  "withKstatus() says of one without conditions, or without a reason, that it has not ended",
  async (t) => {
    t.same(withKstatus([]), [{ type: "Reconciling", status: "True", reason: "Pending" }]);
    const [, shown] = withKstatus([{ type: "Running", status: "True" }]);
    t.same(shown, { type: "Reconciling", status: "True", reason: "Running" });
  },
);

await tap.test("isShownToKstatus() compares the generation where the status has one", async (t) => {
  const conditions = [condition("Succeeded")];
  t.ok(isShownToKstatus(migrationWith({ conditions, observedGeneration: 2 }, 2)));
  t.notOk(isShownToKstatus(migrationWith({ conditions, observedGeneration: 2 }, 3)), "the spec was changed since");
  t.notOk(isShownToKstatus(migrationWith({ conditions, observedGeneration: -1 }, 1)), "no replica has looked at it");
  t.ok(isShownToKstatus(migrationWith({ conditions }, 3)), "a CRD that does not know the field would keep none");
  t.notOk(isShownToKstatus(migrationWith(undefined, 1)));
});

const HEX = "0123456789abcdef".repeat(4);
const annotated = (value: string) => ({ [REENCRYPT_ANNOTATION]: value, other: "x" });

await tap.test("reencryptionWishOf() reads what the annotation asks for", async (t) => {
  t.equal(reencryptionWishOf(undefined), undefined);
  t.equal(reencryptionWishOf({ other: "true" }), undefined);
  t.equal(reencryptionWishOf(annotated("false")), undefined);
  t.same(reencryptionWishOf(annotated("true")), {});
  t.same(reencryptionWishOf(annotated(`sha256:${HEX}`)), { expectedConfig: `sha256:${HEX}` });
  t.same(reencryptionWishOf(annotated(HEX)), { expectedConfig: `sha256:${HEX}` }, "as sha256sum prints it");
  for (const wish of [{}, { expectedConfig: `sha256:${HEX}` }]) {
    t.same(reencryptionWishOf(reencryptAnnotation(wish)), wish);
  }
});

await tap.test(
  "reencryptionWishOf() refuses every other value, so that no migration succeeds without evidence",
  async (t) => {
    for (const value of [
      "",
      "yes",
      "True",
      "1",
      "any",
      "optional",
      HEX.slice(1),
      `${HEX}0`,
      `md5:${HEX}`,
      `sha256:${HEX} `,
      "x".repeat(9_999),
    ]) {
      t.throws(() => reencryptionWishOf(annotated(value)), {
        code: "AnnotationInvalid",
        message: /the annotation ksvm\.sigs\.k8s\.io\/reencrypt is not "true", "false" or the SHA-256 digest/,
      });
      t.ok(asksForReencryption(annotated(value)), "nor does it count as one that does not re-encrypt");
    }
    t.notOk(asksForReencryption(undefined));
    t.notOk(asksForReencryption(annotated("false")));
    t.ok(asksForReencryption(annotated("true")));
  },
);

await tap.test("configDigestOf() takes upper case for no digest: API servers show none", async (t) => {
  t.equal(configDigestOf(HEX.toUpperCase()), undefined);
});
