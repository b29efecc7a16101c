import tap from "tap";
import { decide } from "../../src/trigger/decide.ts";
import type { MigrationFacts } from "../../src/trigger/migration-facts.ts";
import { builtIn, crd, custom, migration, MINUTE, NOW, situation, state } from "./situation.ts";

/** A migration that says Succeeded, for this reason or for none, of the hash of now. */
function succeeded(reason: string | undefined, more: Partial<MigrationFacts> = {}): MigrationFacts {
  const { provenCrd: _, reason: _given, ...facts } = migration("Succeeded", "B", more);
  return reason === undefined ? facts : { ...facts, reason };
}

await tap.test("decide() believes no success of a built-in resource that ksvm did not write", (t) => {
  const known = state(["A", "B"], "B");
  // kube-storage-version-migrator gives no reason, and Kubernetes' own migrator another one; ksvm finds nothing to do with a CRD alone.
  for (const reason of [undefined, "", "StorageVersionMigrationSucceeded", "NothingToDo"]) {
    for (const isOurs of [true, false]) {
      const decision = decide(situation(builtIn("B"), known, [succeeded(reason, { isOurs })]));
      t.equal(decision.cause, "unchanged", String(reason));
      t.equal(decision.status, undefined, "objects may be stored as A");
      t.match(decision.create, { hash: "B", attempt: 2 });
    }
  }
  for (const reason of ["Migrated", "Reencrypted"]) {
    const { cause, create, status } = decide(situation(builtIn("B"), known, [succeeded(reason)]));
    t.match({ cause, status }, { cause: "completed", status: { persisted: ["B"], current: "B" } }, reason);
    t.equal(create, undefined);
  }
  t.end();
});

await tap.test("decide() tries again later each time where another program calls every migration Succeeded", (t) => {
  const known = state(["A", "B"], "B");
  const first = succeeded(undefined);
  const again = succeeded(undefined, { uid: "again", name: "again", attempt: 2, createdAt: NOW - MINUTE });
  const busy = decide(situation(builtIn("B"), known, [first, again]));
  t.equal(busy.create, undefined);
  t.equal(busy.lookAgainMs, MINUTE);
  t.match(busy.waiting, /^"again" proves nothing: another program than ksvm called it Succeeded \(attempt 2\)$/);
  t.same(busy.remove, [first], "one record is kept");
  const later = decide(situation(builtIn("B"), known, [{ ...again, endedAt: NOW - MINUTE }]));
  t.match(later.create, { hash: "B", attempt: 3 });
  const third = { ...again, uid: "third", attempt: 3 };
  t.equal(decide(situation(builtIn("B"), known, [third])).lookAgainMs, 2 * MINUTE);
  t.end();
});

await tap.test("decide() counts on where another program says that a migration of a user ends later", (t) => {
  const known = state(["A", "B"], "B");
  const failed = migration("Failed", "B", {
    uid: "own",
    name: "own",
    attempt: 5,
    createdAt: NOW - MINUTE,
    endedAt: NOW,
  });
  for (const aheadMs of [2 * MINUTE, 60 * MINUTE, 1e12]) {
    const ofUser = succeeded(undefined, { isOurs: false, createdAt: NOW - 5 * MINUTE, endedAt: NOW + aheadMs });
    const decision = decide(situation(builtIn("B"), known, [ofUser, failed]));
    t.equal(decision.create, undefined, "the wait of the fifth failure goes on");
    t.equal(decision.lookAgainMs, 16 * MINUTE);
  }
  const newer = succeeded(undefined, { isOurs: false, createdAt: NOW, endedAt: NOW });
  const before = { ...failed, endedAt: NOW - MINUTE };
  t.match(decide(situation(builtIn("B"), known, [newer, before])).create, { attempt: 6 }, "of all that were in vain");
  t.end();
});

await tap.test("decide() says so of a CRD, too", (t) => {
  const observed = custom(crd(["v2"]));
  const known = state(["#v1", "#v2"], "#v2", { crd: { uid: "crd-uid", generation: 3, storedVersions: ["v2"] } });
  const again = { ...succeeded(undefined, { attempt: 2 }), hash: "#v2" };
  const decision = decide(situation(observed, known, [again]));
  t.equal(decision.status, undefined);
  t.match(decision.waiting, /another program than ksvm called it Succeeded/);
  t.end();
});
