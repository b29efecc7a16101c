import tap from "tap";
import { type StorageVersionMigration, isWholeRun, stateOf } from "../../src/api/migration.ts";
import { dueOf } from "../../src/controller/expiry.ts";
import { conditionsIn, phaseAfter, progressOf, reportIn } from "../../src/controller/migration-status.ts";
import { RunProgress } from "../../src/controller/run-progress.ts";
import type { MigrationResult } from "../../src/old/migrator/result.ts";
import { Tally } from "../../src/old/migrator/rewrite/counts.ts";

const [T1, T2] = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z"];

function migrationWith(conditions: readonly object[]): StorageVersionMigration {
  return { status: { conditions } } as unknown as StorageVersionMigration;
}

await tap.test("conditionsIn() keeps at most one end, and shows a wait before Running", async (t) => {
  const running = conditionsIn({ type: "Running" }, [], T1);
  t.strictSame(running, [{ type: "Running", status: "True", lastUpdateTime: T1 }]);
  const waiting = conditionsIn({ type: "Waiting", reason: "R", message: "m" }, running, T2);
  t.strictSame(waiting, [
    { type: "Waiting", status: "True", reason: "R", message: "m", lastUpdateTime: T2 },
    { type: "Running", status: "True", lastUpdateTime: T1 },
  ]);
  t.equal(stateOf(migrationWith(waiting)), "Waiting");
  const done = conditionsIn({ type: "Succeeded", reason: "Migrated" }, waiting, T2);
  t.strictSame(done, [
    { type: "Waiting", status: "False", lastUpdateTime: T2 },
    { type: "Running", status: "False", lastUpdateTime: T2 },
    { type: "Succeeded", status: "True", reason: "Migrated", lastUpdateTime: T2 },
  ]);
  t.equal(stateOf(migrationWith(done)), "Succeeded");
});

await tap.test(
  "conditionsIn() shows that a migration is suspended before anything else, and drops that it waits",
  async (t) => {
    const queued = conditionsIn({ type: "Pending", reason: "Queued", message: "waits for its turn" }, [], T1);
    t.equal(stateOf(migrationWith(queued)), "Pending");
    const running = conditionsIn({ type: "Running" }, queued, T1);
    t.strictSame(running, [{ type: "Running", status: "True", lastUpdateTime: T1 }]);
    const suspended = conditionsIn({ type: "Suspended", reason: "SuspendedByUser" }, running, T2);
    t.strictSame(suspended, [
      { type: "Suspended", status: "True", reason: "SuspendedByUser", lastUpdateTime: T2 },
      { type: "Running", status: "False", lastUpdateTime: T2 },
    ]);
    t.equal(stateOf(migrationWith(suspended)), "Suspended");
    t.equal(stateOf(migrationWith(conditionsIn({ type: "Running" }, suspended, T2))), "Running");
  },
);

await tap.test("conditionsIn() moves lastUpdateTime only with what a condition says", async (t) => {
  const first = conditionsIn({ type: "Waiting", reason: "R", message: "m" }, [], T1);
  t.strictSame(conditionsIn({ type: "Waiting", reason: "R", message: "m" }, first, T2), first);
  t.equal(conditionsIn({ type: "Waiting", reason: "R", message: "n" }, first, T2)[0]?.lastUpdateTime, T2);
});

for (const [conditions, state] of [
  [[], "Pending"],
  [[{ type: "Running", status: "False" }], "Pending"],
  [[{ type: "Running", status: "True" }], "Running"],
  [
    [
      { type: "Running", status: "True" },
      { type: "Failed", status: "True" },
    ],
    "Failed",
  ],
] as const) {
  await tap.test(`stateOf() is ${state} with ${JSON.stringify(conditions)}`, async (t) => {
    t.equal(stateOf(migrationWith(conditions)), state);
  });
}

await tap.test("progressOf() counts what was looked at, of what there is", async (t) => {
  const { counts } = new Tally();
  t.strictSame(progressOf(counts), { counts: { migrated: 0, skipped: 0, failed: 0 }, progress: "0/0" });
  Object.assign(counts, { done: 10, migrated: 4, current: 1, newer: 2, gone: 1, failed: 2, total: 25 });
  t.strictSame(progressOf(counts), {
    counts: { migrated: 4, skipped: 4, failed: 2, remaining: 15 },
    progress: "10/25",
  });
  // The estimate may fall behind what was seen.
  counts.total = 9;
  t.strictSame(progressOf(counts), { counts: { migrated: 4, skipped: 4, failed: 2, remaining: 0 }, progress: "10/10" });
});

await tap.test("phaseAfter() and reportIn() fail a migration that left objects behind, with their names", async (t) => {
  const tally = new Tally();
  tally.add({ namespace: "ns", name: "a" }, { kind: "failed", reason: "x".repeat(5_000) });
  const { counts, failures } = tally;
  const result = { resource: "r", outcome: "incomplete", counts, failures, changedObjects: [] } as const;
  t.match(phaseAfter(result), { type: "Failed", reason: "ObjectsNotMigrated", message: /^1 objects/ });
  const report = reportIn(result);
  t.match(report.failures, [{ namespace: "ns", name: "a" }]);
  t.equal(report.failures?.[0]?.reason.length, 1_001);
  t.equal(phaseAfter({ ...result, outcome: "migrated" }).type, "Succeeded");
  t.equal(reportIn({ ...result, outcome: "migrated", crd: "uid/3" }).crd, "uid/3");
  t.equal(reportIn({ ...result, crd: "uid/3" }).crd, undefined, "nothing is proven");
  t.match(phaseAfter({ ...result, outcome: "nothing-to-do" }), { type: "Succeeded", reason: "NothingToDo" });
});

await tap.test("conditionsIn() and reportIn() cut long texts, and say so", async (t) => {
  const message = "😀".repeat(20_000);
  const [failed] = conditionsIn({ type: "Failed", reason: "R", message }, [], T1);
  t.equal(failed?.message?.length, 4_095, "one more would cut a character in two");
  t.match(failed?.message, /… \(cut: 40000 characters\)$/);
  t.ok(failed?.message?.isWellFormed());
  const again = conditionsIn({ type: "Failed", reason: "R", message }, failed === undefined ? [] : [failed], T2);
  t.strictSame(again, [failed], "it says the same");
  const failures = [{ name: "o", reason: "r".repeat(5_000) }];
  const report = reportIn({ resource: "r", outcome: "incomplete", failures } as unknown as Parameters<
    typeof reportIn
  >[0]);
  t.equal(report.failures?.[0]?.reason.length, 1_024);
});

await tap.test(
  "phaseAfter() says which configuration re-encrypted objects have, and that failed ones need the old key, if there is one",
  async (t) => {
    const tally = new Tally();
    const result = {
      resource: "r",
      encryption: "sha256:1",
      counts: tally.counts,
      failures: [],
      changedObjects: [],
    } as const;
    t.same(phaseAfter({ ...result, outcome: "migrated" }), {
      type: "Succeeded",
      reason: "Reencrypted",
      message: "every object is encrypted by configuration sha256:1",
    });
    t.match(phaseAfter({ ...result, outcome: "incomplete" }), {
      type: "Failed",
      message: "0 objects could not be migrated; the old key is still needed",
    });
  },
);

await tap.test("phaseAfter() gives the reasons by which others see that ksvm has looked at every object", async (t) => {
  const result = { resource: "r", failures: [], changedObjects: [] } as const;
  const reasonOf = (more: Pick<MigrationResult, "outcome" | "encryption">) => phaseAfter({ ...result, ...more }).reason;
  t.ok(isWholeRun(reasonOf({ outcome: "migrated" })));
  t.ok(isWholeRun(reasonOf({ outcome: "migrated", encryption: "sha256:1" })));
  t.notOk(isWholeRun(reasonOf({ outcome: "nothing-to-do" })));
  t.notOk(isWholeRun(reasonOf({ outcome: "incomplete" })));
  t.notOk(isWholeRun(undefined));
});

/** Which of these objects, by the resourceVersions that they were listed with, count as progress in this order. */
function countedBy(run: RunProgress, watermark: string, listed: readonly (string | undefined)[]): boolean[] {
  return listed.map((written, at) => run.advanced({ done: at + 1, written, watermark }));
}

await tap.test("RunProgress counts each object once, by the first watermark of the migration", async (t) => {
  const run = new RunProgress();
  t.same(countedBy(run, "100", ["7", undefined, "100"]), [true, false, true], "what was not written does not count");
  // It begins at the first object. The fourth was not reached before.
  t.same(countedBy(run, "110", ["101", "8", "102", "9"]), [false, true, false, true]);
});

await tap.test("RunProgress counts no object that was created since the migration began", async (t) => {
  const run = new RunProgress();
  t.same(countedBy(run, "100", ["7", "8"]), [true, true]);
  t.same(countedBy(run, "110", ["101", "102", "105"]), [false, false, false], "one object more with each attempt");
  t.same(countedBy(run, "120", ["111", "112", "113", "115"]), [false, false, false, false]);
});

const ended = (name: string, resource: string, endedAt: number, expiresAt?: number) => ({
  name,
  resource,
  pastEnd: { endedAt, ...(expiresAt === undefined ? {} : { expiresAt }) },
});
const MIGRATIONS = [
  ended("b", "pods", 2),
  ended("expired", "pods", 9, 10),
  ended("a", "pods", 1),
  ended("later", "pods", 3, 11),
  ended("c", "nodes", 1),
  { name: "runs", resource: "pods" },
];
const names = (limit: number): readonly string[] =>
  dueOf(MIGRATIONS, { limit, now: 10 }).map(({ migration, why }) => `${migration.name}: ${why}`);

await tap.test("dueOf() takes what has expired, and of each resource what ended before the newest ones", async (t) => {
  t.same(names(0), ["expired: expired"], "no limit");
  t.same(names(1), ["expired: expired", "b: beyond the limit", "a: beyond the limit"]);
  t.same(names(2), ["expired: expired", "a: beyond the limit"], "what has expired takes no place");
  t.same(names(3), ["expired: expired"]);
});
