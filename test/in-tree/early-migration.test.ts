import tap from "tap";
import {
  EARLY_REASON,
  earlyMessage,
  type EarlyMigration,
  earlyMigrationOf,
} from "../../src/in-tree/early-migration.ts";
import { crdWith } from "../api/crd-with.ts";

const NOW = Date.parse("2026-01-01T00:01:00Z");

/** As it is so many milliseconds after the change. */
function after(ms: number, at: number | undefined = NOW - ms) {
  return { settleMs: 65_000, serverNow: NOW, localNow: NOW, now: 0, change: { at, seenAt: 0 } };
}

await tap.test("earlyMigrationOf() is nothing once the settle time is over", (t) => {
  const crd = crdWith({ versions: ["v1", "v2+"], storedVersions: ["v1", "v2"] });
  t.match(earlyMigrationOf(crd, after(65_999)), { remainingMs: 1, oldVersions: ["v1"] });
  t.equal(earlyMigrationOf(crd, after(66_000)), undefined);
  t.end();
});

await tap.test("earlyMigrationOf() is nothing where no other version than the storage version was ever stored", (t) => {
  t.equal(
    earlyMigrationOf(crdWith({ storedVersions: ["v2"] }), after(0)),
    undefined,
    "a new CRD, or one that is migrated",
  );
  for (const storedVersions of [undefined, [], ["v1"], ["v1", "v2"]]) {
    t.ok(earlyMigrationOf(crdWith({ storedVersions }), after(0)), String(storedVersions));
  }
  t.end();
});

await tap.test("earlyMigrationOf() throws where an answer is no CRD that an API server stores", (t) => {
  t.throws(() => earlyMigrationOf(crdWith({ versions: ["v1"] }), after(0)), TypeError);
  t.end();
});

const EARLY: EarlyMigration = {
  crdName: "widgets.example.com",
  settleMs: 65_000,
  remainingMs: 41_001,
  oldVersions: ["v1alpha1"],
  isStamped: true,
};

await tap.test("earlyMessage() says why, and when it is no longer so, on one line", (t) => {
  t.equal(
    earlyMessage(EARLY, "deny"),
    `${EARLY_REASON}: the versions of CustomResourceDefinition "widgets.example.com" changed less than 65 s ago: a write that was ` +
      "under way may still be stored in v1alpha1 after this migration has listed the objects, and is lost when that version leaves the " +
      "CRD; retry in 42 s",
  );
  t.match(earlyMessage(EARLY, "warn"), /; create another one in 42 s$/);
  const unstamped = earlyMessage({ ...EARLY, isStamped: false, oldVersions: [] }, "deny");
  t.match(
    unstamped,
    /the managedFields of .* do not tell when its versions changed: .* stored in another version after/,
  );
  const many = Array.from({ length: 1_000 }, (_, index) => `v${index}`);
  t.ok(earlyMessage({ ...EARLY, oldVersions: many }, "deny").length < 600);
  t.end();
});
