import tap from "tap";
import { decide } from "../../src/trigger/decide.ts";
import type { CrdRecord } from "../../src/trigger/crd-facts.ts";
import { HEARTBEAT_LIMIT_MS } from "../../src/api/migration.ts";
import { DEFAULT_INTERVAL_MS, MAX_INTERVAL_MS } from "../../src/trigger/trigger.ts";
import { builtIn, crd, custom, disagreeing, migration, MINUTE, NOW, situation, state } from "./situation.ts";

const OLD = NOW - 11 * MINUTE;

function recordOf(storedVersions: readonly string[], generation = 3): CrdRecord {
  return { uid: "crd-uid", generation, storedVersions };
}

function names(migrations: readonly { readonly name: string }[]): readonly string[] {
  return migrations.map(({ name }) => name);
}

await tap.test("decide() takes a resource without a StorageState for a new one", async (t) => {
  const running = migration("Running", undefined, { isOurs: false });
  const decision = decide(situation(builtIn("A"), undefined, [running]));
  t.equal(decision.cause, "new");
  t.same(decision.status, { persisted: ["Unknown"], current: "A" });
  t.same(decision.remove, [running], "what runs is stopped");
  t.match(decision.create, { hash: "A", attempt: 1, isLowPriority: false });
  t.equal(decide(situation(builtIn("A"), state([], ""))).cause, "new", "a status that was never written is none");
});

await tap.test("decide() leaves alone what is as it should be", async (t) => {
  const decision = decide(situation(builtIn("A"), state(["A"], "A"), [migration("Succeeded", "A")]));
  t.equal(decision.cause, "unchanged");
  t.equal(decision.status, undefined);
  t.equal(decision.create, undefined);
  t.same(decision.remove, []);
});

await tap.test("decide() appends a changed hash once, and replaces the migration", async (t) => {
  const old = migration("Running", "A");
  const decision = decide(situation(builtIn("B"), state(["A"], "A"), [old]));
  t.equal(decision.cause, "changed");
  t.same(decision.status, { persisted: ["A", "B"], current: "B" });
  t.same(decision.remove, [old]);
  t.match(decision.create, { hash: "B", attempt: 1, isLowPriority: false });
  const back = decide(situation(builtIn("A"), state(["A", "B"], "B"), [migration("Pending", "B")]));
  t.same(back.status, { persisted: ["A", "B"], current: "A" }, "no duplicates");
  t.same(names(back.remove), ["Pending-B"]);
});

await tap.test("decide() makes up for what an interrupted run did not do", async (t) => {
  const decision = decide(situation(builtIn("B"), state(["A", "B"], "B")));
  t.equal(decision.cause, "unchanged");
  t.match(decision.create, { hash: "B", attempt: 1 });
});

await tap.test("decide() refines the StorageState when the migration for the current hash succeeded", async (t) => {
  const decision = decide(situation(builtIn("B"), state(["A", "B"], "B"), [migration("Succeeded", "B")]));
  t.equal(decision.cause, "completed");
  t.same(decision.status, { persisted: ["B"], current: "B" });
  t.same(decision.remove, [], "the record of it stays");
  t.equal(decision.create, undefined);
});

await tap.test("decide() believes no migration that succeeded for something else", async (t) => {
  const older = decide(situation(builtIn("B"), state(["A", "B"], "B"), [migration("Succeeded", "A")]));
  t.equal(older.status, undefined);
  t.same(names(older.remove), ["Succeeded-A"]);
  t.match(older.create, { hash: "B" });

  const there = decide(situation(builtIn("B"), state(["A"], "A"), [migration("Succeeded", "A")]));
  t.same(names(there.remove), ["Succeeded-A"], "so that it is not believed when the hash comes back");

  const changed = decide(situation(builtIn("C"), state(["A", "B"], "B"), [migration("Succeeded", "B")]));
  t.same(changed.status, { persisted: ["A", "B", "C"], current: "C" }, "the hash changed before the end was noticed");

  const unmarked = migration("Succeeded", undefined, { isOurs: false });
  const decision = decide(situation(builtIn("B"), state(["A", "B"], "B"), [unmarked]));
  t.equal(decision.status, undefined, "nobody knows for which hash it ran");
});

await tap.test("decide() disowns what another owner's migration showed once things changed", async (t) => {
  const foreign = migration("Succeeded", "B", { isOurs: false });
  const decision = decide(situation(builtIn("B"), state(["B"], "B", { heartbeat: OLD }), [foreign]));
  t.same(decision.disown, [foreign]);
  t.same(decision.remove, []);
});

await tap.test("decide() trusts no built-in resource that no replica looked at for too long", async (t) => {
  const decision = decide(
    situation(builtIn("A"), state(["A"], "A", { heartbeat: OLD }), [migration("Succeeded", "A")]),
  );
  t.equal(decision.cause, "stale");
  t.same(decision.status, { persisted: ["Unknown", "A"], current: "A" });
  t.same(names(decision.remove), ["Succeeded-A"]);
  t.match(decision.create, { hash: "A", isLowPriority: true }, "with an unchanged hash it queues last");
  const changed = decide(situation(builtIn("B"), state(["A"], "A", { heartbeat: OLD })));
  t.same(changed.status, { persisted: ["Unknown", "A", "B"], current: "B" });
  const never = decide(situation(builtIn("A"), state(["A"], "A", { heartbeat: Number.NaN })));
  t.equal(never.cause, "stale");
});

await tap.test(
  "a StorageState is stale after ten minutes without a look, and looks come at less than half of that",
  async (t) => {
    t.equal(HEARTBEAT_LIMIT_MS, 10 * MINUTE, "the limit of the proposal");
    t.ok(DEFAULT_INTERVAL_MS < HEARTBEAT_LIMIT_MS / 2);
    t.ok(MAX_INTERVAL_MS < HEARTBEAT_LIMIT_MS / 2);
    for (const [minutes, cause] of [
      [4, "unchanged"],
      [9, "unchanged"],
      [11, "stale"],
      [15, "stale"],
    ] as const) {
      const decision = decide(situation(builtIn("A"), state(["A"], "A", { heartbeat: NOW - minutes * MINUTE })));
      t.equal(decision.cause, cause, `${minutes} minutes`);
      t.equal(decision.create !== undefined, cause === "stale");
    }
  },
);

await tap.test("decide() keeps the value of a CRD that shows that nothing was missed", async (t) => {
  const stale = { heartbeat: OLD };
  const clean = crd(["v1"]);
  const kept = decide(situation(custom(clean), state(["#v1"], "#v1", { ...stale, crd: recordOf(["v1"]) })));
  t.equal(kept.cause, "unchanged");
  t.equal(kept.create, undefined);

  const moved = decide(situation(custom(clean), state(["#v1"], "#v1", { ...stale, crd: recordOf(["v1"], 1) })));
  t.same(moved.status?.persisted, ["Unknown", "#v1"], "its generation moved by two");
  t.match(moved.create, { isLowPriority: false });
  const unclean = crd(["v1alpha1", "v1"]);
  const known = state(["#v1"], "#v1", { ...stale, crd: recordOf(["v1alpha1", "v1"]) });
  t.equal(decide(situation(custom(unclean), known)).cause, "stale", "storedVersions lists more");
  t.equal(
    decide(situation(custom(clean), state(["#v1"], "#v1", stale))).cause,
    "stale",
    "nobody recorded the generation",
  );
});

await tap.test("decide() takes a CRD that was deleted and created again for a new one", async (t) => {
  const record = { ...recordOf(["v1"]), uid: "another" };
  const decision = decide(situation(custom(crd(["v1"])), state(["#v1"], "#v1", { crd: record })));
  t.equal(decision.cause, "new");
  t.same(decision.status?.persisted, ["Unknown"]);
  t.equal(decision.crdRecord, "crd-uid/3/v1");
});

await tap.test("decide() sees in storedVersions that a storage version went there and back", async (t) => {
  const flipped = custom(crd(["v2", "v1"]));
  const decision = decide(situation(flipped, state(["#v1"], "#v1", { crd: recordOf(["v1"], 1) })));
  t.equal(decision.cause, "storedVersions");
  t.same(decision.status, { persisted: ["#v1", "#v2"], current: "#v1" });
  t.match(decision.create, { hash: "#v1" });
  t.equal(decision.crdRecord, "crd-uid/3/v2,v1");

  const known = state(["#v1"], "#v1", { crd: recordOf(["v2", "v1"]) });
  t.equal(
    decide(situation(flipped, known)).create,
    undefined,
    "without pruning it is migrated once, not again and again",
  );
});

await tap.test("decide() records what API servers that disagree may write, and starts nothing", async (t) => {
  const running = migration("Running", "A");
  const decision = decide(situation(disagreeing(["A", "B"]), state(["A"], "A"), [running]));
  t.equal(decision.cause, "disagreement");
  t.same(decision.status, { persisted: ["A", "B"], current: "Unknown" });
  t.same(decision.remove, [running]);
  t.equal(decision.create, undefined);
  t.equal(decision.waiting, "they differ");

  const still = decide(situation(disagreeing(["A", "B"]), state(["A", "B"], "Unknown")));
  t.equal(still.status, undefined);
  const fresh = decide(situation(disagreeing(["A", "B"]), undefined));
  t.same(fresh.status, { persisted: ["Unknown", "A", "B"], current: "Unknown" });
  const stale = decide(situation(disagreeing(["A", "B"]), state(["A"], "A", { heartbeat: OLD })));
  t.same(stale.status?.persisted, ["Unknown", "A", "B"]);

  const agreed = decide(situation(builtIn("B"), state(["A", "B"], "Unknown")));
  t.same(agreed.status, { persisted: ["A", "B"], current: "B" });
  t.match(agreed.create, { hash: "B" }, "it goes on when they agree");
});

await tap.test("decide() takes a user's migration that has not begun, and lets one that runs go on", async (t) => {
  const pending = migration("Pending", undefined, { isOurs: false });
  const taken = decide(situation(builtIn("B"), state(["A"], "A"), [pending]));
  t.same(taken.adopt, [pending]);
  t.same(taken.remove, []);
  t.equal(taken.create, undefined);

  const running = migration("Running", undefined, { isOurs: false });
  const beside = decide(situation(builtIn("B"), state(["A", "B"], "B"), [running]));
  t.same(beside.remove, []);
  t.match(beside.create, { hash: "B" });
});

await tap.test("decide() tries a failed migration again, later each time, and keeps one record of it", async (t) => {
  const known = state(["A", "B"], "B");
  const failed = migration("Failed", "B", { endedAt: NOW - MINUTE / 2 });
  const waits = decide(situation(builtIn("B"), known, [failed]));
  t.equal(waits.create, undefined);
  t.equal(waits.lookAgainMs, MINUTE / 2);
  t.match(waits.waiting, /"Failed-B" failed \(attempt 1\)/);

  const due = decide(situation(builtIn("B"), known, [{ ...failed, endedAt: NOW - MINUTE }]));
  t.match(due.create, { hash: "B", attempt: 2 });
  t.same(due.remove, [], "the record stays while the next one runs");

  const ahead = { ...failed, createdAt: NOW - MINUTE / 4, endedAt: NOW + 525_600 * MINUTE };
  const early = decide(situation(builtIn("B"), known, [ahead]));
  t.equal(early.lookAgainMs, (3 * MINUTE) / 4, "the clock of the replica that wrote its end is a year ahead");
  const again = decide(situation(builtIn("B"), known, [{ ...ahead, createdAt: NOW - MINUTE }]));
  t.match(again.create, { attempt: 2 }, "and the wait ends all the same");
  const long = { ...failed, createdAt: NOW - 130 * MINUTE, endedAt: NOW + 500 };
  const next = decide(situation(builtIn("B"), known, [long]));
  t.equal(next.lookAgainMs, MINUTE, "the clock of the API server is read a moment before: a long run has its pause");
  const behind = decide(situation(builtIn("B"), known, [{ ...ahead, endedAt: NOW - 525_600 * MINUTE }]));
  t.equal(behind.lookAgainMs, (3 * MINUTE) / 4, "or a year behind");

  const second = migration("Failed", "B", { uid: "2", name: "second", attempt: 2, createdAt: NOW - MINUTE });
  const both = decide(situation(builtIn("B"), known, [failed, second]));
  t.same(both.remove, [failed]);
  t.equal(both.lookAgainMs, 2 * MINUTE);

  const later = migration("Succeeded", "B", { attempt: 2, createdAt: NOW - MINUTE });
  t.same(decide(situation(builtIn("B"), known, [failed, later])).remove, [failed]);
  const changed = decide(situation(builtIn("C"), known, [failed]));
  t.match(changed.create, { hash: "C", attempt: 1 }, "another hash is another matter");
});

await tap.test("decide() puts no freeze back that another client lifted", async (t) => {
  const observed = custom(crd(["v1alpha1", "v1"]));
  const known = state(["#v1alpha1", "#v1"], "#v1", { crd: recordOf(["v1alpha1", "v1"]) });
  const lifted = migration("Failed", "#v1", { reason: "FreezeLifted", endedAt: 0 });
  const decision = decide(situation(observed, known, [lifted]));
  t.equal(decision.create, undefined);
  t.equal(decision.lookAgainMs, undefined, "not even later");
  t.match(decision.waiting, /another client lifted the freeze/);

  const flipped = decide(situation(custom(crd(["v1", "v1alpha1"])), known, [lifted]));
  t.match(flipped.create, { hash: "#v1alpha1" }, "until the storage version changes");
  t.match(decide(situation(observed, known, [])).create, { hash: "#v1" }, "or a user deletes the record");

  const foreign = migration("Failed", undefined, { reason: "FreezeLifted", isOurs: false });
  const marked = decide(situation(observed, known, [foreign]));
  t.same(marked.adopt, [foreign], "a user's is marked with what it failed for");
  t.equal(marked.create, undefined);
});

await tap.test("decide() leaves a suspended migration alone, and creates no other beside it", async (t) => {
  const suspended = migration("Pending", "A", { isSuspended: true });
  const same = decide(situation(builtIn("A"), state(["Unknown", "A"], "A"), [suspended]));
  t.same(same.remove, []);
  t.equal(same.create, undefined);
  t.same(same.adopt, []);

  const moved = decide(situation(builtIn("B"), state(["Unknown", "A"], "A"), [suspended]));
  t.same(
    moved.status,
    { persisted: ["Unknown", "A", "B"], current: "B" },
    "what may be stored is recorded all the same",
  );
  t.same(moved.remove, []);
  t.equal(moved.create, undefined);
  t.same(moved.disown, [suspended], "it no longer stands for the hash of before");
  t.same(moved.adopt, [suspended], "and is the one for the new hash when it goes on");

  const back = decide(
    situation(custom(crd(["v1"])), state(["#v1"], "#v2"), [migration("Pending", "#v1", { isSuspended: true })]),
  );
  t.equal(back.disown.length, 1, "the storage version went there and back while it was stopped");
});

await tap.test(
  "decide() begins again where storedVersions is not managed and the spec of the CRD changed",
  async (t) => {
    const facts = crd(["v1", "v2"], { generation: 5 });
    const known = state(["#v1", "#v2"], "#v2", { crd: recordOf(["v1", "v2"], 3) });
    const unmanaged = { crdMode: "rewrite" as const };
    const running = decide({ ...situation(custom(facts), known, [migration("Running", "#v2")]), ...unmanaged });
    t.same(names(running.remove), ["Running-#v2"], "it began before the change");
    t.match(running.create, { hash: "#v2" });
    const ended = decide({ ...situation(custom(facts), known, [migration("Succeeded", "#v2")]), ...unmanaged });
    t.equal(ended.cause, "storedVersions");
    const same = { ...known, crd: recordOf(["v1", "v2"], 5) };
    const since = migration("Succeeded", "#v2", { provenCrd: "crd-uid/5" });
    const done = decide({ ...situation(custom(facts), same, [since]), ...unmanaged });
    t.equal(done.cause, "completed");
  },
);

await tap.test("decide() takes nothing to do for a proof only where no other version is known of", async (t) => {
  const found = migration("Succeeded", "#v2", { reason: "NothingToDo" });
  const known = { crd: recordOf(["v2"]) };
  const doubtful = decide(situation(custom(crd(["v2"])), state(["#v1", "#v2"], "#v2", known), [found]));
  t.equal(doubtful.cause, "unchanged");
  t.match(doubtful.create, { hash: "#v2", isForced: true });
  const unknown = decide(situation(custom(crd(["v2"])), state(["Unknown"], "#v2", known), [found]));
  t.equal(unknown.cause, "completed");
});

await tap.test(
  "decide() believes a finished migration only for the spec that its CRD had then, and tries again later each time",
  async (t) => {
    const observed = custom(crd(["v2"], { generation: 5 }));
    const known = state(["#v1", "#v2"], "#v2", { crd: recordOf(["v2"], 5) });
    const done = migration("Succeeded", "#v2", { reason: "Migrated" });
    const moved = decide(situation(observed, known, [done]));
    t.equal(moved.cause, "unchanged");
    t.equal(moved.status, undefined, "storedVersions may have been pruned by another client");
    t.match(moved.create, { hash: "#v2", isForced: true, attempt: 2 });
    for (const provenCrd of ["crd-uid/5", "another/5", "crd-uid/4"]) {
      const { cause } = decide(situation(observed, known, [{ ...done, provenCrd }]));
      t.equal(cause, provenCrd === "crd-uid/5" ? "completed" : "unchanged", provenCrd);
    }
    const { provenCrd: _, ...unsaid } = done;
    t.equal(decide(situation(observed, known, [unsaid])).cause, "unchanged", "nobody says for which spec");

    const again = { ...done, uid: "again", name: "again", attempt: 2, createdAt: NOW - MINUTE, provenCrd: "crd-uid/4" };
    const busy = decide(situation(observed, known, [done, again]));
    t.equal(busy.create, undefined, "a CRD that never stands still is not rewritten all the time");
    t.equal(busy.lookAgainMs, MINUTE);
    t.match(busy.waiting, /"again" proves nothing: its CRD changed since \(attempt 2\)/);
    t.same(names(busy.remove), ["Succeeded-#v2"], "one record is kept");
    const later = decide(situation(observed, known, [{ ...again, endedAt: NOW - MINUTE }]));
    t.match(later.create, { attempt: 3, isForced: true });
  },
);
