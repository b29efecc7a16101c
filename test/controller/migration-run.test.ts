import pino from "pino";
import tap from "tap";
import { stateOf } from "../../src/api/migration.ts";
import { EventRecorder } from "../../src/controller/event-recorder.ts";
import { MigrationRecord } from "../../src/controller/migration-record.ts";
import { MigrationRun } from "../../src/controller/migration-run.ts";
import type { OpenedRun, RunParts } from "../../src/controller/run-factory.ts";
import { type Slot, Slots } from "../../src/controller/slots.ts";
import { KsvmError } from "../../src/errors.ts";
import { TransportError } from "../../src/kube/errors.ts";
import { Retrier } from "../../src/migrator/retrier.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { ManualClock } from "../manual-clock.ts";
import { ApiStandIn } from "./api-stand-in.ts";

/** How long an engine waits without a freeze before it gives up, in milliseconds. */
const WAIT_MS = 600_000;

await tap.test("MigrationRun gives its slot up in every wait, also after one that was in vain", async (t) => {
  const clock = new ManualClock();
  const retrier = new Retrier({ clock, random: () => 0 });
  const api = new ApiStandIn();
  api.add("m", { created: "2026-01-01T00:00:00Z" });
  const { client } = api;
  // An engine that gets stuck at once, waits, and ends as after an outage that lasts.
  const openRun = ({ emit, signal }: RunParts): OpenedRun => {
    const find = async (): Promise<never> => {
      emit({ type: "waiting", reason: "no answer", budgetMs: WAIT_MS });
      await clock.sleep(WAIT_MS, signal);
      const cause = new TransportError("GET m", "https://stand-in", new Error("ECONNREFUSED"));
      throw new KsvmError("RetryBudgetExceeded", "no progress", { cause });
    };
    const context = { client: { find }, options: {}, retrier, signal } as unknown as RunContext;
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
    onEvent: () => undefined,
  });
  const ended = run.run().catch((error: unknown) => error);
  for (let attempt = 1; attempt <= 3; attempt++) {
    await clock.advance(60_000);
    t.equal(stateOf(api.get("m")), "Waiting", `attempt ${attempt} waits`);
    t.equal(held.isHeld, false, `attempt ${attempt} waits without a slot`);
    await clock.advance(WAIT_MS);
  }
  stop.abort(new Error("stopped"));
  await clock.advance(10_000);
  t.match(await ended, { message: "stopped" });
});
