import t from "tap";
import { KsvmError } from "../../src/errors.ts";
import { ApiServerMissing } from "../../src/next/apiservers/find.ts";
import { EpochChanged } from "../../src/next/epoch.ts";
import { ApiError } from "../../src/next/kube/errors.ts";
import { mayBeginAgain } from "../../src/next/migrator/attempts.ts";
import { InTreeRunning } from "../../src/next/migrator/in-tree.ts";
import { Stalled } from "../../src/next/migrator/rewrite.ts";
import { checkpointPurpose } from "../../src/next/migrator/run-lease.ts";
import type { MigrateOptions } from "../../src/next/migrator/types.ts";

const MINUTE = 60_000;

/** What ends an attempt, and for how many minutes without progress the run begins again after it. */
const TABLE: readonly (readonly [string, unknown, number])[] = [
  ["an API server that fails", new ApiError("patch it", 503, "busy"), 15],
  ["a webhook that is down", new ApiError("patch it", 500, 'failed calling webhook "a": refused'), 15],
  ["a path that is not served", new ApiError("list it", 404, "404 page not found"), 15],
  ["a guard that is not proven", new KsvmError("FreezeNotProven", "a webhook's pods roll"), 15],
  ["a stall", new Stalled(undefined), 15],
  ["a migration of Kubernetes", new InTreeRunning("theirs"), 15],
  ["an API server that is missing", new ApiServerMissing("1 of 2 answer"), 70],
  ["rights that are missing", new ApiError("patch it", 403, 'User "a" cannot patch resource "widgets"'), 0],
  ["a user who lifts the freeze", new KsvmError("FreezeLifted", "lifted"), 0],
  ["a fault of this program", new TypeError("undefined"), 0],
];

for (const [name, error, minutes] of TABLE) {
  t.test(`${name} has the run begin again for ${minutes} minutes`, async (t) => {
    const run = { changes: 0, progressAt: MINUTE };
    t.equal(mayBeginAgain(run, error, minutes * MINUTE), minutes > 0);
    t.notOk(mayBeginAgain(run, error, (minutes + 1) * MINUTE));
    t.strictSame(run, { changes: 0, progressAt: MINUTE }, "nothing is counted by asking");
  });
}

t.test("a CRD that keeps changing has the run begin again four times", async (t) => {
  const error = new EpochChanged("widgets.example.com", "the spec changed");
  const tries = [1, 2, 3, 4, 5].map((changes) => mayBeginAgain({ changes, progressAt: 0 }, error, 24 * 60 * MINUTE));
  t.strictSame(tries, [true, true, true, true, false]);
});

t.test("a checkpoint is that of a run which waited as long, and for the same API servers", async (t) => {
  const purposeOf = (options: Partial<MigrateOptions>, identity = "a"): string =>
    checkpointPurpose(options as MigrateOptions, identity);
  const usual = purposeOf({});
  t.equal(purposeOf({ settleMs: 90_000, ignored: [], purpose: "migrate" }, "b"), usual);
  const others = [
    { settleMs: 1_000 },
    { settleMs: 180_000 },
    { ignored: ["apiserver-x"] },
    { endpoints: ["https://a"] },
    { purpose: "reencrypt" },
  ];
  const all = [usual, ...others.map((options) => purposeOf(options)), purposeOf({ force: true })];
  t.equal(new Set(all).size, all.length);
  t.not(purposeOf({ force: true }, "a"), purposeOf({ force: true }, "b"), "one that is forced resumes itself alone");
});
