import pino from "pino";
import tap, { type Test } from "tap";
import { type MigrationStatus, stateOf } from "../../src/api/migration.ts";
import type { CustomResourceDefinition } from "../../src/api/crd.ts";
import { FORCE_ANNOTATION, REENCRYPT_ANNOTATION } from "../../src/api/names.ts";
import { EventRecorder } from "../../src/controller/event-recorder.ts";
import { MigrationRecord } from "../../src/controller/migration-record.ts";
import { MigrationRun } from "../../src/controller/migration-run.ts";
import type { MigrationParts, OpenedRun } from "../../src/controller/run-factory.ts";
import { type Slot, Slots } from "../../src/controller/slots.ts";
import { KsvmError } from "../../src/errors.ts";
import { ApiError, TransportError } from "../../src/kube/errors.ts";
import { CRDS, MERGE_PATCH, MIGRATIONS, type Resource } from "../../src/kube/resources.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { runChecks } from "../../src/observability/health.ts";
import { Loops } from "../../src/observability/loops.ts";
import { NO_PULSE, type Pulse } from "../../src/pulse.ts";
import { ManualClock } from "../manual-clock.ts";
import { ApiStandIn } from "./api-stand-in.ts";

const MINUTE_MS = 60_000;
/** How long an engine waits without a freeze before it gives up, in milliseconds. */
const WAIT_MS = 10 * MINUTE_MS;

const unreachable = new TransportError("GET m", "https://stand-in", new Error("ECONNREFUSED"));
const overloaded = new ApiError("PATCH m", 503, { text: "later" });
const spent = new KsvmError("RetryBudgetExceeded", "no progress", { cause: overloaded });
const forbidden = new KsvmError("Forbidden", "Cannot migrate: this user may not list ms");

/** What stands for the engine of a run, up to the CRD that it finds. It gets the number of the attempt, from 1 on. */
type Engine = (parts: MigrationParts, attempt: number) => Promise<CustomResourceDefinition>;

const nothing = (): Promise<undefined> => Promise.resolve(undefined);

interface RunSetting {
  readonly pulse?: Pulse;
  readonly clock?: ManualClock;
  readonly annotations?: Readonly<Record<string, string>>;
}

/** A migration that is carried out by an engine of the test's, of which only the end is of interest. */
async function startRun(
  t: Test,
  engine: Engine,
  { pulse = NO_PULSE, clock = new ManualClock(), annotations = {} }: RunSetting = {},
) {
  const forever = { maxIdleMs: Number.POSITIVE_INFINITY, webhookWaitMs: Number.POSITIVE_INFINITY };
  const retrier = new Retrier({ clock, random: () => 0, ...forever });
  const api = new ApiStandIn();
  api.add("m", { created: "2026-01-01T00:00:00Z", annotations });
  const { client } = api;
  const attempts: number[] = [];
  const openRun = (parts: MigrationParts): OpenedRun => {
    const find = (resource: Resource): Promise<CustomResourceDefinition | undefined> => {
      if (resource !== CRDS) {
        return nothing();
      }
      attempts.push(clock.monotonic());
      return engine(parts, attempts.length);
    };
    const engineClient = { find, findIfServed: nothing, findMetadata: nothing, transport: client.transport };
    const options = { force: parts.force, leaseNamespace: "ns" };
    const { emit, signal } = parts;
    const context = { client: engineClient, options, retrier, signal, clock, emit } as unknown as RunContext;
    return { context, stall: () => undefined, close: () => Promise.resolve() };
  };
  const begun: Slot[] = [];
  const slots = new Slots(1, { isThere: () => false, start: (slot) => begun.length === 0 && begun.push(slot) > 0 });
  slots.dispatch();
  const [held] = begun;
  const stop = new AbortController();
  const owner = { lease: "ns/l", identity: "a", since: "2026-01-01T00:00:00Z" };
  const parts = { client, clock, logger: pino({ level: "silent" }), retrier, signal: stop.signal };
  const record = await MigrationRecord.claim(
    { ...parts, owner, assertLeading: () => undefined },
    { name: "m", uid: "uid-m" },
  );
  if (record === undefined || held === undefined) {
    throw new Error("it has not begun");
  }
  const run = new MigrationRun({
    ...parts,
    record,
    openRun,
    recorder: new EventRecorder(parts),
    identity: "a",
    slot: held,
    isSlotWanted: () => false,
    pulse,
    onEvent: () => undefined,
  });
  const ended = run.run().then(
    () => undefined,
    (error: unknown) => error,
  );
  t.teardown(async () => {
    stop.abort(new Error("stopped"));
    await clock.advance(10_000);
    await ended;
  });
  return { api, attempts, clock, ended, slot: held, stop };
}

/** Gets stuck at once, waits, and ends as after an outage that lasts. */
function stuckFor(waitMs: number, cause: Error): (parts: MigrationParts, clock: ManualClock) => Promise<never> {
  return async ({ emit, signal }, clock) => {
    emit({ type: "waiting", reason: "no answer", budgetMs: waitMs });
    await clock.sleep(waitMs, signal);
    throw new KsvmError("RetryBudgetExceeded", "no progress", { cause });
  };
}

await tap.test("MigrationRun gives its slot up in every wait, also after one that was in vain", async (t) => {
  const stuck = stuckFor(WAIT_MS, unreachable);
  const run = await startRun(t, (parts) => stuck(parts, run.clock));
  for (let attempt = 1; attempt <= 3; attempt++) {
    await run.clock.advance(MINUTE_MS);
    t.equal(stateOf(run.api.get("m")), "Waiting", `attempt ${attempt} waits`);
    t.equal(run.slot.isHeld, false, `attempt ${attempt} waits without a slot`);
    await run.clock.advance(WAIT_MS);
  }
  run.stop.abort(new Error("stopped"));
  await run.clock.advance(10_000);
  t.match(await run.ended, { message: "stopped" });
});

await tap.test(
  "MigrationRun waits through a 503 that uses up the budget of a run, and goes on by itself",
  async (t) => {
    const stuck = stuckFor(15 * MINUTE_MS, overloaded);
    const run = await startRun(t, (parts, attempt) => {
      return attempt === 1 ? stuck(parts, run.clock) : Promise.reject(new KsvmError("FreezeLifted", "it got further"));
    });
    await run.clock.advance(14 * MINUTE_MS);
    t.equal(stateOf(run.api.get("m")), "Waiting");
    await run.clock.advance(MINUTE_MS + 2_000);
    t.match(run.api.get("m").status?.conditions?.[0], {
      type: "Waiting",
      status: "True",
      reason: "RetryBudgetExceeded",
    });
    t.equal(run.slot.isHeld, false);
    await run.clock.advance(10_000);
    t.match(run.api.get("m").status?.conditions?.at(-1), { reason: "FreezeLifted" }, "it was tried again");
  },
);

await tap.test("MigrationRun waits through a 503 of two hours, and goes on by itself", async (t) => {
  const isOver = (): boolean => run.clock.monotonic() >= 120 * MINUTE_MS;
  const run = await startRun(t, () => Promise.reject(isOver() ? new KsvmError("FreezeLifted", "further") : spent));
  for (let minutes = 0; minutes < 119; minutes += 17) {
    await run.clock.advance(17 * MINUTE_MS);
    t.equal(stateOf(run.api.get("m")), "Waiting");
    t.equal(run.slot.isHeld, false);
  }
  await run.clock.advance(3 * MINUTE_MS);
  t.match(run.api.get("m").status?.conditions?.at(-1), { reason: "FreezeLifted" }, "it was tried again");
});

await tap.test(
  "MigrationRun tries what ends at once again, later each time, and no more than once a minute",
  async (t) => {
    const run = await startRun(t, () => Promise.reject(spent));
    await run.clock.advance(60 * MINUTE_MS);
    t.equal(stateOf(run.api.get("m")), "Waiting");
    const pauses = run.attempts.slice(1).map((at, index) => at - (run.attempts[index] ?? 0));
    t.same(
      pauses.slice(0, 5).map((ms) => Math.round(ms / 1_000)),
      [5, 10, 20, 40, 60],
    );
    t.ok(pauses.slice(5).every((ms) => ms >= 60_000));
  },
);

await tap.test(
  "MigrationRun has failed where a cause that only a user may end lasts a quarter of an hour",
  async (t) => {
    const run = await startRun(t, () => Promise.reject(forbidden));
    await run.clock.advance(14 * MINUTE_MS);
    const waiting = run.api.get("m");
    t.equal(stateOf(waiting), "Waiting");
    t.match(
      waiting.status?.conditions?.[0],
      { reason: "Forbidden", message: /may not list ms/ },
      "it says what is missing",
    );
    await run.clock.advance(3 * MINUTE_MS);
    t.equal(stateOf(run.api.get("m")), "Failed");
    t.equal(await run.ended, undefined);
  },
);

await tap.test(
  "MigrationRun begins to count the time of a cause again once an object was written, or for another cause",
  async (t) => {
    const run = await startRun(t, ({ onAdvance }, attempt) => {
      if (run.clock.monotonic() > 10 * MINUTE_MS && run.clock.monotonic() < 12 * MINUTE_MS) {
        onAdvance?.({ done: 9, written: "9", watermark: "100" });
      }
      return Promise.reject(attempt === 5 ? spent : forbidden);
    });
    await run.clock.advance(24 * MINUTE_MS);
    t.equal(stateOf(run.api.get("m")), "Waiting");
    await run.clock.advance(6 * MINUTE_MS);
    t.equal(stateOf(run.api.get("m")), "Failed");
  },
);

await tap.test(
  "MigrationRun fails in the end where each attempt writes every object and the same cleanup fails",
  async (t) => {
    // The resource grows by one object with each attempt.
    const run = await startRun(t, ({ onAdvance }, attempt) => {
      for (let done = 1; done <= attempt + 8; done++) {
        const revision = 100 * attempt + done;
        onAdvance?.({ done, written: String(revision), watermark: String(100 * attempt + 99) });
      }
      return Promise.reject(new KsvmError("CleanupFailed", "the Lease could not be deleted"));
    });
    await run.clock.advance(14 * MINUTE_MS);
    t.equal(stateOf(run.api.get("m")), "Waiting");
    t.ok(run.attempts.length < 30, `${run.attempts.length} attempts: they grow rare`);
    await run.clock.advance(3 * MINUTE_MS);
    t.equal(stateOf(run.api.get("m")), "Failed");
    t.match(run.api.get("m").status?.conditions?.at(-1), { reason: "CleanupFailed" });
  },
);

await tap.test("MigrationRun writes no result over the end that another client gave its migration", async (t) => {
  const ended = { conditions: [{ type: "Failed", status: "True", reason: "Theirs" }] };
  const run = await startRun(t, async () => {
    const { name, resourceVersion } = run.api.get("m").metadata;
    const patch = { type: "application/merge-patch+json", body: { metadata: { resourceVersion }, status: ended } };
    await run.api.client.patch(MIGRATIONS, { name }, patch, { subresource: "status" });
    throw new KsvmError("NotConverged", "an API server lags");
  });
  await run.clock.advance(MINUTE_MS);
  t.match(await run.ended, { name: "MigrationOver" });
  t.match(run.api.get("m").status?.conditions, ended.conditions);
});

await tap.test(
  "/livez leaves a leader alone whose migration waits for a day, and sees one whose engine hangs",
  async (t) => {
    const clock = new ManualClock();
    const loops = new Loops(clock, { migrations: 75 * MINUTE_MS });
    const loop = loops.add("migrations");
    const isAlive = (): boolean => runChecks("livez", loops.checks()).passed;
    const run = await startRun(
      t,
      async ({ signal }) => {
        if (clock.monotonic() < 24 * 60 * MINUTE_MS) {
          throw new KsvmError("ForeignFreeze", "frozen by a user");
        }
        return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason as Error)));
      },
      { pulse: loop, clock },
    );
    for (let hours = 0; hours < 24; hours += 2) {
      await clock.advance(120 * MINUTE_MS);
      t.ok(isAlive(), `after ${hours + 2} hours`);
      t.equal(stateOf(run.api.get("m")), "Waiting");
    }
    await clock.advance(78 * MINUTE_MS);
    t.notOk(isAlive(), "an engine that does nothing for too long hangs");
  },
);

await tap.test("MigrationRun leaves a watermark out of the status that its CRD does not take", async (t) => {
  const seen: unknown[] = [];
  const run = await startRun(t, async ({ onPageDone }) => {
    for (const watermark of ["w".repeat(1_025), "w".repeat(1_024)]) {
      await onPageDone({ watermark });
      seen.push(run.api.get("m").status?.watermark?.length);
    }
    throw forbidden;
  });
  await run.clock.advance(1_000);
  t.same(seen, [undefined, 1_024]);
});

await tap.test("MigrationRun fails one whose wish to re-encrypt cannot be read, and begins no run", async (t) => {
  const run = await startRun(t, () => Promise.reject(forbidden), { annotations: { [REENCRYPT_ANNOTATION]: "yes" } });
  await run.clock.advance(1_000);
  t.match(run.api.get("m").status?.conditions?.at(-2), { type: "Failed", reason: "AnnotationInvalid" });
  t.same(run.attempts, []);
});

const CLEAN = {
  apiVersion: "apiextensions.k8s.io/v1",
  kind: "CustomResourceDefinition",
  metadata: { name: "ms.example.com", uid: "uid-ms", resourceVersion: "5", generation: 1 },
  spec: {
    group: "example.com",
    scope: "Namespaced",
    names: { plural: "ms", kind: "M" },
    versions: [{ name: "v1", served: true, storage: true }],
  },
  status: { storedVersions: ["v1"] },
} satisfies CustomResourceDefinition;

await tap.test("MigrationRun begins again where a user asks for force while it finds nothing to do", async (t) => {
  const forces: unknown[] = [];
  const run = await startRun(t, async ({ force }) => {
    forces.push(force);
    if (force) {
      throw new KsvmError("FreezeLifted", "it has more to do");
    }
    const { resourceVersion } = run.api.get("m").metadata;
    const metadata = { resourceVersion, annotations: { [FORCE_ANNOTATION]: "true" } };
    await run.api.client.patch(MIGRATIONS, { name: "m" }, { type: MERGE_PATCH, body: { metadata } });
    return CLEAN;
  });
  await run.clock.advance(MINUTE_MS);
  t.same(forces, [false, true]);
  t.match(run.api.get("m").status?.conditions?.at(-2), { type: "Failed", reason: "FreezeLifted" });
});

await tap.test("a result whose write has no answer and has arrived is no other client's", async (t) => {
  let isLost = false;
  const run = await startRun(t, async () => {
    run.api.loss = ({ body, path }) => {
      const { conditions = [] } = (body as { status?: MigrationStatus } | undefined)?.status ?? {};
      const isEnd =
        path.endsWith("/status") && conditions.some(({ type, status }) => type === "Failed" && status === "True");
      const isNow = isEnd && !isLost;
      isLost ||= isEnd;
      return isNow ? unreachable : undefined;
    };
    throw new KsvmError("FreezeLifted", "another client lifted it");
  });
  await run.clock.advance(MINUTE_MS);
  t.ok(isLost);
  t.equal(await run.ended, undefined, "the run has brought it to its end");
  t.match(
    run.api.get("m").status?.conditions?.find(({ type }) => type === "Failed"),
    { reason: "FreezeLifted" },
  );
  t.ok(
    run.api.writes.some((write) => write.endsWith("/events")),
    "and an Event says so",
  );
});
