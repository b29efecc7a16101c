import tap from "tap";
import { type StorageVersionMigration, isWholeRun, stateOf } from "../../src/api/migration.ts";
import { EpochChanged } from "../../src/apiservers/converge.ts";
import { ApiServerMissing } from "../../src/apiservers/find.ts";
import {
  conditionsIn,
  phaseAfter,
  phaseAfterError,
  phaseIn,
  progressOf,
  reportIn,
} from "../../src/controller/migration-status.ts";
import { ERROR_CODES, type ErrorCode, KsvmError } from "../../src/errors.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { InTreeRunning } from "../../src/migrator/in-tree.ts";
import { newTally, type MigrationResult } from "../../src/migrator/types.ts";

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
  const tally = newTally();
  t.strictSame(progressOf(tally), { counts: { migrated: 0, skipped: 0, failed: 0, remaining: 0 }, progress: "0/0" });
  Object.assign(tally, { rewritten: 4, current: 1, newer: 2, gone: 1, failed: 2, total: 25 });
  t.strictSame(progressOf(tally), {
    counts: { migrated: 4, skipped: 4, failed: 2, remaining: 15 },
    progress: "10/25",
  });
  // The estimate may fall behind what was seen.
  tally.total = 9;
  t.strictSame(progressOf(tally), { counts: { migrated: 4, skipped: 4, failed: 2, remaining: 0 }, progress: "10/10" });
});

await tap.test("phaseIn() says what a run waits for, and for how long it does", async (t) => {
  t.match(phaseIn({ type: "waiting", for: "webhook", reason: "it is down" }), {
    type: "Waiting",
    reason: "WaitingForWebhook",
    message: "it is down",
  });
  t.match(phaseIn({ type: "waiting", for: "apiServer", reason: "pass --ignore-apiserver" }), {
    reason: "ApiServerMissing",
    message: 'pass --ignore-apiserver (flags of "ksvm controller")',
  });
  t.match(phaseIn({ type: "beginsAgain", reason: "the CRD changed" }), { type: "Running", message: "the CRD changed" });
  t.strictSame(phaseIn({ type: "settled", isLongPast: true }), { type: "Running" });
  t.equal(phaseIn({ type: "unfrozen" }), undefined);
});

const failures = [{ namespace: "ns", name: "a", reason: "x".repeat(5_000) }];

await tap.test("phaseAfter() and reportIn() fail a migration that left objects behind, with their names", async (t) => {
  const tally = { ...newTally(), failed: 1, failures };
  const result = { resource: "r", outcome: "incomplete", storageVersion: "v1", epoch: "uid/3", tally } as const;
  t.match(phaseAfter(result), { type: "Failed", reason: "ObjectsNotMigrated", message: /^1 objects.* not pruned$/ });
  const report = reportIn(result);
  t.match(report.failures, [{ namespace: "ns", name: "a" }]);
  t.equal(report.failures?.[0]?.reason.length, 1_024);
  t.equal(report.crd, undefined, "nothing is proven");
  t.equal(phaseAfter({ ...result, outcome: "migrated" }).type, "Succeeded");
  t.equal(reportIn({ ...result, outcome: "migrated" }).crd, "uid/3");
  const builtIn: MigrationResult = { resource: "r", outcome: "migrated", epoch: "hash processes", tally };
  t.equal(reportIn(builtIn).crd, undefined, "it has no CRD");
  t.match(phaseAfter({ ...result, outcome: "nothing-to-do" }), { type: "Succeeded", reason: "NothingToDo" });
});

await tap.test("conditionsIn() cuts long texts, and says so", async (t) => {
  const message = "😀".repeat(20_000);
  const [failed] = conditionsIn({ type: "Failed", reason: "R", message }, [], T1);
  t.equal(failed?.message?.length, 4_095, "one more would cut a character in two");
  t.match(failed?.message, /… \(cut: 40000 characters\)$/);
  t.ok(failed?.message?.isWellFormed());
  const again = conditionsIn({ type: "Failed", reason: "R", message }, failed === undefined ? [] : [failed], T2);
  t.strictSame(again, [failed], "it says the same");
});

await tap.test(
  "phaseAfter() says which configuration re-encrypted objects have, and that failed ones need the old key, if there is one",
  async (t) => {
    const configuration = `sha256:${"1".repeat(64)}`;
    const result = { resource: "r", epoch: `h p encryption configuration ${configuration} own`, tally: newTally() };
    t.same(phaseAfter({ ...result, outcome: "migrated" }), {
      type: "Succeeded",
      reason: "Reencrypted",
      message: `every object is encrypted by configuration ${configuration}`,
    });
    t.match(phaseAfter({ ...result, outcome: "incomplete" }), {
      type: "Failed",
      message: "0 objects could not be migrated; the old key is still needed",
    });
    const isWhole = (more: Pick<MigrationResult, "outcome" | "epoch">): boolean =>
      isWholeRun(phaseAfter({ resource: "r", ...more }).reason);
    t.ok(isWhole({ ...result, outcome: "migrated" }), "others see by the reason that every object was looked at");
    t.ok(isWhole({ outcome: "migrated" }));
    t.notOk(isWhole({ outcome: "nothing-to-do" }));
    t.notOk(isWhole({ outcome: "incomplete" }));
  },
);

function answer(status: number, message: string): ApiError {
  return new ApiError("PATCH /x", status, message, { answer: { kind: "Status", message } });
}

const denial = 'admission webhook "w.example.com" denied the request: no';
const forbidden = 'widgets is forbidden: User "u" cannot patch resource "widgets" in API group "example.com"';

/** What a migration does after a failed request. */
const requests: readonly (readonly [string, Error, "Waiting" | "Failed", string])[] = [
  ["no answer", answer(0, "connect ECONNREFUSED"), "Waiting", "ServerUnreachable"],
  ["302 of a proxy", answer(302, "log in"), "Waiting", "WaitingForOthers"],
  ["429", answer(429, "too many requests"), "Waiting", "WaitingForOthers"],
  ["429 of a watch cache", answer(429, "storage is (re)initializing"), "Waiting", "WaitingForWebhook"],
  ["500", answer(500, "etcdserver: leader changed"), "Waiting", "WaitingForOthers"],
  ["500 of a webhook", answer(500, 'failed calling webhook "w": connection refused'), "Waiting", "WaitingForWebhook"],
  ["503", answer(503, "the server is currently unable to handle the request"), "Waiting", "WaitingForOthers"],
  ["409", answer(409, "the object has been modified"), "Waiting", "Conflict"],
  ["410", answer(410, "expired"), "Waiting", "WaitingForOthers"],
  ["401", answer(401, "Unauthorized"), "Waiting", "Unauthorized"],
  ["403 of the authorizer", answer(403, forbidden), "Waiting", "Forbidden"],
  ["404 of a path", answer(404, "404 page not found"), "Waiting", "NotFound"],
  ["400", answer(400, "bad"), "Failed", "ApiRequestFailed"],
  ["422", answer(422, "does not fit the schema"), "Failed", "ApiRequestFailed"],
  ["a denial with 503", answer(503, denial), "Failed", "ApiRequestFailed"],
  ["500 of one object", answer(500, "failed to create typed live object"), "Failed", "ApiRequestFailed"],
];

for (const [what, error, type, reason] of requests) {
  await tap.test(`phaseAfterError() is ${type} after ${what}`, async (t) => {
    t.match(phaseAfterError(error), { type, reason });
  });
}

/** What passes by itself, or once an administrator has repaired the installation. */
const WAITS: readonly ErrorCode[] = [
  "AlreadyMigrating",
  "ApiServerMissing",
  "CleanupFailed",
  "Conflict",
  "EncryptionUnknown",
  "Forbidden",
  "ForeignFreeze",
  "FreezeNotProven",
  "KubeconfigInvalid",
  "NotFound",
  "OwnershipLost",
  "PruneFailed",
  "RetryBudgetExceeded",
  "ServerUnreachable",
  "ServerUntrusted",
  "StorageVersionChanged",
  "Unauthorized",
];

await tap.test("phaseAfterError() has a verdict on every error code", async (t) => {
  for (const code of ERROR_CODES) {
    const type = WAITS.includes(code) ? "Waiting" : "Failed";
    t.match(phaseAfterError(new KsvmError(code, "why")), { type, reason: code, message: "why" }, code);
  }
  t.match(phaseAfterError(new InTreeRunning("m")), { type: "Waiting", reason: "InTreeMigration" });
  t.match(phaseAfterError(new ApiServerMissing("a")), { type: "Waiting", reason: "ApiServerMissing" });
  t.match(phaseAfterError(new EpochChanged("r", "it changed")), { type: "Waiting", reason: "StorageVersionChanged" });
  t.match(phaseAfterError(new TypeError("a fault")), { type: "Failed", reason: "Internal", message: "a fault" });
});
