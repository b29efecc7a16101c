import tap from "tap";
import type { CustomResourceDefinition } from "../../src/api/crd.ts";
import { STORAGE_MIGRATING_CONDITION } from "../../src/api/names.ts";
import { KsvmError } from "../../src/errors.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { ApiError, TransportError } from "../../src/kube/errors.ts";
import type { CrdMonitor } from "../../src/migrator/crd-monitor.ts";
import { type PruneOptions, type Pruned, pruneStoredVersions } from "../../src/migrator/prune.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { crdWith } from "../api/crd-with.ts";
import { ManualClock } from "../manual-clock.ts";

const INTERRUPTED = new KsvmError("Interrupted", "Interrupted");
const BROKEN = new TransportError("PATCH crd", "https://server", new Error("read ECONNRESET"));

/**
 * Prunes on a stand-in for an API server, whose answers to the write are `answers`, and then 200: on a real one the moment of a
 * restore cannot be chosen. @returns what was done, in order
 */
async function pruned(
  answers: Error[],
  options: Partial<PruneOptions> & { readonly readsBack?: Error; readonly found?: CustomResourceDefinition } = {},
): Promise<{
  readonly steps: readonly string[];
  readonly statuses: readonly unknown[];
  readonly told: readonly unknown[];
  readonly result: Pruned | undefined;
  readonly error: unknown;
}> {
  const clock = new ManualClock();
  const stop = new AbortController();
  const failed = (error: Error): Error => {
    if (error === INTERRUPTED) stop.abort(error);
    return error;
  };
  const steps: string[] = [];
  const statuses: unknown[] = [];
  let crd = options.found ?? crdWith({ storedVersions: ["v1", "v2"] });
  let isWritten = false;
  const client = {
    get: async () => {
      if (isWritten && options.readsBack !== undefined) throw failed(options.readsBack);
      return crd;
    },
    patch: async (_resource: unknown, _ref: unknown, { body }: { readonly body: { readonly status: unknown } }) => {
      steps.push("write");
      statuses.push(body.status);
      const error = answers.shift();
      if (error !== undefined) throw failed(error);
      crd = crdWith({ storedVersions: ["v2"] });
      isWritten = true;
    },
  } as unknown as ApiClient;
  const expected = {
    name: crd.metadata.name,
    uid: crd.metadata.uid,
    storageVersion: "v2",
    requestVersion: "v2",
    conversion: { strategy: "None" },
    owner: "",
  };
  const retrier = new Retrier({ clock, random: () => 0.5, maxIdleMs: 60_000 });
  const told: unknown[] = [];
  const emit = (event: unknown): unknown => told.push(event);
  const context = { client, clock, retrier, signal: stop.signal, emit } as unknown as RunContext;
  let [result, error]: [Pruned | undefined, unknown] = [undefined, undefined];
  const ended = pruneStoredVersions(context, {
    expected,
    monitor: { verifyUpTo: async () => undefined } as unknown as CrdMonitor,
    proveAgain: async () => void steps.push("prove"),
    renewLease: async () => void steps.push("renew"),
    ...options,
  }).then(
    (found) => (result = found),
    (thrown: unknown) => (error = thrown),
  );
  for (let second = 0; second < 120; second++) await clock.advance(1_000);
  await ended;
  return { steps, statuses, told, result, error };
}

await tap.test(
  "pruneStoredVersions() writes the Lease before the proof, and once more right before the prune",
  async (t) => {
    const { steps, result } = await pruned([]);
    t.same(steps, ["renew", "prove", "renew", "write"]);
    t.same(result?.storedVersions, ["v2"]);
  },
);

await tap.test("pruneStoredVersions() writes the Lease before each attempt: etcd may have been restored", async (t) => {
  const { steps, result } = await pruned([BROKEN, BROKEN]);
  t.same(steps, ["renew", "prove", "renew", "write", "renew", "write", "renew", "write"]);
  t.same(result?.storedVersions, ["v2"]);
});

await tap.test("pruneStoredVersions() writes nothing once the Lease is not as the run left it", async (t) => {
  let renewals = 0;
  const lost = new KsvmError("OwnershipLost", "it is as it was some time ago");
  const renewLease = async (): Promise<void> => {
    if (++renewals === 3) throw lost;
  };
  const { steps, error } = await pruned([BROKEN], { renewLease });
  t.same(steps, ["prove", "write"]);
  t.equal(error, lost);
});

await tap.test(
  "pruneStoredVersions() gives up after too long without progress, and at once where it is refused",
  async (t) => {
    const broken = await pruned(Array.from({ length: 1_000 }, () => BROKEN));
    t.match(broken.error, { code: "RetryBudgetExceeded" });
    const refusal = new ApiError("PATCH crd", 422, { answer: { kind: "Status", message: "no" } });
    const refused = await pruned([refusal]);
    t.equal(refused.error, refusal);
    t.same(refused.steps, ["renew", "prove", "renew", "write"]);
  },
);

const UNREAD = [
  {
    type: "warning",
    message: `storedVersions of "${crdWith({}).metadata.name}" may be pruned all the same: the API server did not say what became of the write`,
  },
];
const timedOut = new ApiError("PATCH crd", 504, {});
const refused = new ApiError("PATCH crd", 403, {});
const conflict = new ApiError("PATCH crd", 409, { answer: { kind: "Status", reason: "Conflict" } });

for (const [name, answers, readsBack, told] of [
  ["the run is interrupted while the write is under way", [INTERRUPTED], undefined, UNREAD],
  ["the API server runs out of time in the midst of the write", [timedOut, refused], undefined, UNREAD],
  ["an answer is lost, and the next attempt is refused", [BROKEN, refused], undefined, UNREAD],
  ["the run is interrupted before the write is read back", [], INTERRUPTED, UNREAD],
  [
    "an answer is lost, the CRD was written in between, and no proof is had again",
    [BROKEN, conflict],
    undefined,
    UNREAD,
  ],
  ["the API server refuses the write", [refused], undefined, []],
  ["nothing was sent, as where the Lease is lost", [new KsvmError("OwnershipLost", "lost")], undefined, []],
] as const) {
  await tap.test(
    `pruneStoredVersions() ${told.length > 0 ? "tells" : "does not tell"} of a doubt where ${name}`,
    async (t) => {
      let proofs = 0;
      const proveAgain = async (): Promise<void> => {
        if (++proofs > 1) throw new KsvmError("FreezeLifted", "lifted");
      };
      const options = { proveAgain, ...(readsBack === undefined ? {} : { readsBack }) };
      const { error, ...rest } = await pruned([...answers], options);
      t.type(error, KsvmError);
      t.same(rest.told, told);
    },
  );
}

/** A CRD on which Kubernetes' own migrator has left a condition, beside one of the API server. */
function saying(condition: { readonly status: string; readonly reason: string }, storedVersions: readonly string[]) {
  const conditions = [ESTABLISHED, { type: STORAGE_MIGRATING_CONDITION, ...condition }];
  return { ...crdWith(), status: { storedVersions, conditions } };
}

const ESTABLISHED = { type: "Established", status: "True" };
const FAILED = { status: "False", reason: "MigrationFailed" };

await tap.test(
  "pruneStoredVersions() takes off the condition of a migration that failed, in the same write: beside it the prune would look unproven",
  async (t) => {
    const dirty = await pruned([], { found: saying(FAILED, ["v1", "v2"]) });
    t.same(dirty.statuses, [{ storedVersions: ["v2"], conditions: [ESTABLISHED] }]);
    t.equal(dirty.result?.clearsDoubt, true);
    const clean = await pruned([], { found: saying(FAILED, ["v2"]) });
    t.same(
      clean.statuses,
      [{ storedVersions: ["v2"], conditions: [ESTABLISHED] }],
      "what that migration has pruned is proven now",
    );
    t.same(clean.steps, ["renew", "prove", "renew", "write"]);
  },
);

await tap.test(
  "pruneStoredVersions() leaves the conditions alone that cast no doubt, or belong to a migration that runs",
  async (t) => {
    const running = await pruned([], { found: saying({ status: "True", reason: "MigrationRunning" }, ["v1", "v2"]) });
    t.same(running.statuses, [{ storedVersions: ["v2"] }]);
    t.equal(running.result?.clearsDoubt, false);
    const succeeded = await pruned([], { found: saying({ status: "False", reason: "MigrationSucceeded" }, ["v2"]) });
    t.same(succeeded.statuses, [], "nothing is written to a CRD that is clean");
  },
);

await tap.test("pruneStoredVersions() tells of no prune where only the condition was to be taken off", async (t) => {
  const { error, told } = await pruned([BROKEN, refused], { found: saying(FAILED, ["v2"]) });
  t.equal(error, refused);
  t.same(told, []);
});
