import tap from "tap";
import { isShownToKstatus, withKstatus } from "../../src/api/kstatus.ts";
import {
  MIGRATION_STATES,
  type MigrationCondition,
  type MigrationStatus,
  type StorageVersionMigration,
} from "../../src/api/migration.ts";

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
