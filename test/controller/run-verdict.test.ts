import { encryptionErrorOf } from "../../src/old/apiservers/encryption-errors.ts";
import tap from "tap";
import { Failing, phaseAfterError, verdictOf } from "../../src/controller/run-verdict.ts";
import { ERROR_CODES, KsvmError } from "../../src/errors.ts";
import { ApiError, TransportError } from "../../src/old/kube/errors.ts";
import { InTreeAtWork, StorageMigratingStuck } from "../../src/in-tree/in-tree-guard.ts";
import { MissingApiServer } from "../../src/old/apiservers/missing-api-server.ts";
import { StartAgain, WaitingForOthers } from "../../src/old/retry/start-again.ts";

const HOUR_MS = 3_600_000;
/** For how long each class of causes is waited for, in milliseconds. */
const WAITS = { always: Number.POSITIVE_INFINITY, grace: 900_000, minute: 60_000, look: 15_000, never: 0 } as const;

function answer(status: number, text: string): ApiError {
  return new ApiError("PATCH /x", status, { answer: { kind: "Status", message: text } });
}

const refused = Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" });
const reset = Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" });
const noCredentials = new Error("nothing can be sent without credentials: the exec plugin failed");
const denial = 'admission webhook "w.example.com" denied the request: no';
const forbidden = 'widgets is forbidden: User "u" cannot patch resource "widgets" in API group "example.com"';
const named = new ApiError("GET /x", 404, { answer: { kind: "Status", reason: "NotFound", details: { name: "x" } } });

function at(error: Error, sinceMs: number): string {
  return phaseAfterError(verdictOf(error), sinceMs).type;
}

/** Failed requests, by what they are a sign of. */
const requests: readonly (readonly [string, Error, keyof typeof WAITS])[] = [
  ["a refused connection", new TransportError("GET /x", "https://server", refused), "always"],
  ["a reset connection", new TransportError("GET /x", "https://server", reset), "always"],
  ["a deadline", new TransportError("GET /x", "https://server", new Error("deadline")), "always"],
  ["credentials that cannot be renewed", new TransportError("GET /x", "https://server", noCredentials), "always"],
  ["302 of a proxy", answer(302, "log in"), "always"],
  ["408", answer(408, "timeout"), "always"],
  ["425", answer(425, "too early"), "always"],
  ["429", answer(429, "too many requests"), "always"],
  ["429 of a watch cache", answer(429, "storage is (re)initializing"), "always"],
  ["500", answer(500, "etcdserver: leader changed"), "always"],
  ["500 of a webhook", answer(500, 'Internal error: failed calling webhook "w": connection refused'), "always"],
  ["500 of a conversion webhook", answer(500, "conversion webhook for x failed: Post https://y: refused"), "always"],
  ["502", answer(502, "bad gateway"), "always"],
  ["503", answer(503, "the server is currently unable to handle the request"), "always"],
  ["504", answer(504, "timeout"), "always"],
  ["409", answer(409, "the object has been modified"), "always"],
  ["410", answer(410, "expired"), "always"],
  ["401", answer(401, "Unauthorized"), "grace"],
  ["401 to credentials that were accepted", new ApiError("GET /x", 401, { wereAccepted: true }), "grace"],
  ["403 of the authorizer", answer(403, forbidden), "grace"],
  ["404 of a path", answer(404, "404 page not found"), "grace"],
  ["404 of an object", named, "grace"],
  ["400", answer(400, "bad"), "never"],
  ["403 of admission", answer(403, "exceeded quota"), "never"],
  ["422", answer(422, "does not fit the schema"), "never"],
  ["a denial with 503", answer(503, denial), "never"],
  ["500 of one object", answer(500, "failed to create typed live object"), "never"],
];

for (const [what, error, wait] of requests) {
  await tap.test(`verdictOf() has a migration wait after ${what}: ${wait}`, async (t) => {
    t.equal(verdictOf(error).waitMs, WAITS[wait]);
    const spent = new KsvmError("RetryBudgetExceeded", "no progress", { cause: error });
    t.equal(verdictOf(spent).waitMs, WAITS[wait], "and where the budget of the run is used up");
    t.equal(verdictOf(new WaitingForOthers(error, 1_000)).waitMs, WAITS[wait], "and in the middle of it");
    for (const code of ["FreezeNotProven", "NotConverged"] as const) {
      t.equal(verdictOf(new KsvmError(code, "x", { cause: error })).waitMs, WAITS[wait], `and behind ${code}`);
    }
  });
}

/** Each code, where no failed request is known behind it. */
const codes: Readonly<Record<(typeof ERROR_CODES)[number], keyof typeof WAITS>> = {
  ServerUnreachable: "always",
  ServerUntrusted: "always",
  ApiServerMissing: "always",
  AlreadyMigrating: "always",
  ForeignFreeze: "always",
  OwnershipLost: "always",
  Conflict: "always",
  WatchFailed: "always",
  ConversionChanged: "always",
  ClockJumps: "grace",
  RetryBudgetExceeded: "always",
  KubeconfigInvalid: "grace",
  ManifestInvalid: "grace",
  Unauthorized: "grace",
  Forbidden: "grace",
  NotFound: "grace",
  VersionNotServed: "grace",
  PruneFailed: "grace",
  CleanupFailed: "grace",
  EncryptionUnknown: "grace",
  StorageMigratingStuck: "minute",
  ResourceNotFound: "look",
  ResourceAmbiguous: "look",
  ApiRequestFailed: "never",
  AggregatedApi: "never",
  AnnotationInvalid: "never",
  FreezeNotProven: "never",
  NotConverged: "never",
  ServerUnsupported: "never",
  ResourceNotMigratable: "never",
  FreezeLifted: "never",
  StorageVersionChanged: "never",
  CrdReplaced: "never",
  OtherMigratorActive: "never",
  CertificateSecretUnusable: "never",
  RotationStuck: "never",
  ClocksDisagree: "never",
  OutputFailed: "never",
  ListenFailed: "never",
  RepairStopped: "never",
  NodeUnsupported: "never",
  Usage: "never",
  Interrupted: "never",
  Internal: "never",
};

await tap.test("verdictOf() has a verdict on every error code", async (t) => {
  t.same(Object.keys(codes).toSorted(), [...ERROR_CODES].toSorted());
  for (const code of ERROR_CODES) {
    t.match(verdictOf(new KsvmError(code, "why")), { reason: code, message: "why", waitMs: WAITS[codes[code]] }, code);
  }
});

await tap.test("verdictOf() knows what engines end with", async (t) => {
  t.match(verdictOf(new InTreeAtWork("m")), { reason: "InTreeMigration", waitMs: WAITS.always });
  t.match(verdictOf(new StorageMigratingStuck("c")), { reason: "StorageMigratingStuck", waitMs: WAITS.minute });
  t.match(verdictOf(new MissingApiServer("a")), { reason: "ApiServerMissing", waitMs: WAITS.always });
  t.match(verdictOf(new StartAgain("WatchFailed", "x")), { reason: "WatchFailed", waitMs: WAITS.always });
  t.match(verdictOf(new TypeError("a fault")), { reason: "Internal", message: "a fault", waitMs: WAITS.never });
});

await tap.test("phaseAfterError() is Waiting for as long as the verdict says, and Failed from then on", async (t) => {
  const spent = new KsvmError("RetryBudgetExceeded", "no progress", { cause: answer(503, "later") });
  t.equal(at(spent, 0), "Waiting");
  t.equal(at(spent, 1_000 * HOUR_MS), "Waiting", "a 503 ends no migration");
  t.equal(at(new KsvmError("Forbidden", "x"), 0), "Waiting");
  t.equal(at(new KsvmError("Forbidden", "x"), WAITS.grace - 1), "Waiting");
  t.equal(at(new KsvmError("Forbidden", "x"), WAITS.grace), "Failed", "the user must act, and is told");
  t.match(phaseAfterError(verdictOf(new KsvmError("FreezeLifted", "why")), 0), {
    type: "Failed",
    reason: "FreezeLifted",
    message: "why",
  });
});

const MINUTE_MS = 60_000;

function spentOn(error: Error): KsvmError {
  return new KsvmError("RetryBudgetExceeded", "no progress", { cause: error });
}

/** The phases after these errors, each of which comes some minutes after the start. */
function phasesOf(...errors: readonly (readonly [number, Error])[]): string[] {
  const failing = new Failing();
  return errors.map(([minutes, error]) => failing.failed(error, minutes * MINUTE_MS).phase.type);
}

await tap.test("Failing counts no outage toward the limit of an error with the same reason", async (t) => {
  const down = new TransportError("GET /x", "https://server", refused);
  const denied = answer(401, "Unauthorized");
  for (const [outage, refusal] of [
    [spentOn(down), spentOn(denied)],
    [new KsvmError("NotConverged", "x", { cause: down }), new KsvmError("NotConverged", "x", { cause: denied })],
  ] as const) {
    t.same(phasesOf([0, outage], [10, outage], [20, refusal]), ["Waiting", "Waiting", "Waiting"]);
    t.same(
      phasesOf([0, refusal], [1, outage], [480, outage], [481, refusal], [495, refusal], [497, refusal]),
      ["Waiting", "Waiting", "Waiting", "Waiting", "Waiting", "Failed"],
      "nor one in between",
    );
  }
});

await tap.test(
  "Failing ends a migration after 15 minutes of errors with a limit, whatever their reasons",
  async (t) => {
    const reasons = [new KsvmError("Forbidden", "x"), new KsvmError("CleanupFailed", "y")] as const;
    const inTurn = Array.from({ length: 16 }, (_, n) => [n, reasons[n % 2 === 0 ? 0 : 1]] as const);
    t.same(phasesOf(...inTurn), [...Array.from({ length: 15 }, () => "Waiting"), "Failed"]);
  },
);

await tap.test("Failing ends a migration where PruneFailed and ClockJumps take turns", async (t) => {
  const [prune, jumps] = [new KsvmError("PruneFailed", "x"), new KsvmError("ClockJumps", "y")];
  t.same(phasesOf([0, prune], [7, jumps], [14, prune], [21, jumps]), ["Waiting", "Waiting", "Waiting", "Failed"]);
});

await tap.test("Failing counts no attempt that worked for long before the first error of its kind", async (t) => {
  const [forbidden, prune] = [new KsvmError("Forbidden", "x"), new KsvmError("PruneFailed", "y")];
  t.same(
    phasesOf([0, forbidden], [25, prune], [37, prune], [38, prune]),
    ["Waiting", "Waiting", "Waiting", "Failed"],
    "two minutes of it count, for the pause and the begin of the attempt",
  );
  t.same(
    phasesOf([0, forbidden], [25, prune], [50, forbidden]),
    ["Waiting", "Waiting", "Failed"],
    "errors that take turns come to an end, however long each attempt takes",
  );
  t.same(phasesOf([0, forbidden], [25, forbidden]), ["Waiting", "Failed"], "the same error again: nothing has changed");
  const denied = spentOn(answer(401, "Unauthorized"));
  const down = spentOn(new TransportError("GET /x", "https://server", refused));
  t.same(
    phasesOf([0, forbidden], [1, down], [2, forbidden], [30, denied]),
    ["Waiting", "Waiting", "Waiting", "Waiting"],
    "an outage with the same reason is of another kind",
  );
});

await tap.test("Failing does not count a longer wait toward the limit of a shorter one", async (t) => {
  const missing = new KsvmError("ResourceNotFound", "x");
  t.same(phasesOf([0, new KsvmError("Forbidden", "x")], [14, missing], [15, missing]), [
    "Waiting",
    "Waiting",
    "Failed",
  ]);
});

await tap.test("Failing begins to count again once the migration got further", async (t) => {
  const failing = new Failing();
  const error = new KsvmError("Forbidden", "x");
  failing.failed(error, 0);
  failing.failed(error, 14 * MINUTE_MS);
  failing.progressed();
  t.match(failing.failed(error, 16 * MINUTE_MS), { phase: { type: "Waiting" }, isNew: true });
  t.match(failing.failed(error, 30 * MINUTE_MS), { phase: { type: "Waiting" }, isNew: false });
  t.match(failing.failed(error, 31 * MINUTE_MS), { phase: { type: "Failed" } });
  failing.progressed();
  failing.failed(new KsvmError("PruneFailed", "y"), 32 * MINUTE_MS);
  t.match(failing.failed(error, 57 * MINUTE_MS), { phase: { type: "Waiting" } }, "each kind comes for the first time");
});

await tap.test(
  "verdictOf() has a migration wait for API servers that do not encrypt alike for as long as it takes",
  async (t) => {
    const error = encryptionErrorOf({ server: "https://b", reason: "it is late", isUntold: false }, '"x"', {
      isUnattended: true,
    });
    t.match(verdictOf(error), {
      reason: "NotConverged",
      message: /https:\/\/b: it is late$/,
      waitMs: Number.POSITIVE_INFINITY,
    });
  },
);
