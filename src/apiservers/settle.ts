import { KsvmError, messageOf } from "../errors.ts";
import { EpochChanged, convergeAll } from "./converge.ts";
import type { Client } from "../kube/client.ts";
import { mayPass } from "../kube/errors.ts";
import type { Crd } from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";
import { type Answers, ApiServerMissing, type ApiServerOptions, identityLeases } from "./find.ts";

/** What a wait tells those who watch it. */
export type ApiServerEvent =
  /** An API server cannot be asked, or is behind. It is waited for, without a freeze. */
  | { readonly type: "waiting"; readonly for: "apiServer"; readonly reason: string }
  | { readonly type: "converged"; readonly apiServers: number; readonly isSampled: boolean }
  /** Writes in an earlier version may still be under way. `reason` says why the wait began, or began again. */
  | { readonly type: "settling"; readonly leftMs: number; readonly reason: string }
  /** No write in an earlier version is under way. `isLongPast` where there was nothing to wait for. */
  | { readonly type: "settled"; readonly isLongPast: boolean };

/** How API servers are asked and waited for. */
export interface SettleOptions extends ApiServerOptions {
  /** Milliseconds. A request may run for 60 s, and etcd may commit it some seconds later. @see DEFAULT_SETTLE_MS */
  readonly settleMs: number;
  readonly signal: AbortSignal;
  readonly onEvent: (event: ApiServerEvent) => void;
}

export const DEFAULT_SETTLE_MS = 90_000;

/** All API servers are asked again after so long. */
const ASK_EVERY_MS = 10_000;
/** How long an API server may take to observe a change, before it is named as behind. */
const CONVERGE_MS = 30_000;
/** An identity Lease outlives its API server by an hour: a little later nothing is left to wait for. */
const MISSING_MS = 70 * 60_000;
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 10_000;

/**
 * Waits until every API server has observed these CRDs, and until every write in an earlier storage version has ended.
 * All of them share the one wait. Nothing may be frozen meanwhile.
 *
 * @returns the CRDs that changed meanwhile, each with its error. The others are settled.
 * @throws {ApiServerMissing} where one could not be asked for longer than its identity Lease lives
 */
export async function settleCrds(
  client: Client,
  crds: readonly Crd[],
  options: SettleOptions,
): Promise<ReadonlyMap<string, EpochChanged>> {
  const changed = new Map<string, EpochChanged>();
  let waiting = crds;
  const ask = async (): Promise<Answers<unknown>> => {
    for (;;) {
      try {
        return await convergeAll(client, options, waiting, { signal: options.signal, forMs: CONVERGE_MS });
      } catch (error) {
        if (!(error instanceof EpochChanged)) throw error;
        changed.set(error.resource, error);
        waiting = waiting.filter(({ metadata }) => metadata.name !== error.resource);
        if (waiting.length === 0) throw error;
      }
    }
  };
  const isChangeLongPast = async (): Promise<boolean> => {
    const now = await oldestClock(client, options.signal);
    return waiting.every((crd) => now - lastSpecChange(crd) > LONG_PAST_MS);
  };
  try {
    await settle(client, ask, isChangeLongPast, options);
  } catch (error) {
    // None is left to wait for.
    if (!(error instanceof EpochChanged)) throw error;
  }
  return changed;
}

/**
 * Waits until `ask` was answered by the same processes, time after time, with `settleMs` of pauses in between.
 *
 * Only the pauses count, not the time that answers take. Where an API server hangs during a pause, its requests wait as
 * well, and so does the next question: at most that one pause is lost. An answer may take as long as it needs, as that
 * about a thousand CRDs does. One that does not come starts the wait over, and so does another process.
 *
 * @param needsNoWait asked once, with the first answers
 * @returns the last answers
 * @throws {ApiServerMissing} where there was no such time in 70 minutes
 */
export async function settle<A extends Answers<unknown>>(
  client: Client,
  ask: () => Promise<A>,
  needsNoWait: (answers: A) => Promise<boolean>,
  options: SettleOptions,
): Promise<A> {
  const { onEvent, settleMs, signal } = options;
  const { clock } = client;
  const start = clock.monotonic();
  const ignored = await renewals(client, options);
  let { answers } = await untilAsked(client, ask, options);
  onEvent({ type: "converged", apiServers: answers.answers.length, isSampled: answers.isSampled });
  // Whether an ignored API server lives shows by a renewal, which takes a while.
  if (ignored.size === 0 && (await needsNoWait(answers))) {
    onEvent({ type: "settled", isLongPast: true });
    return answers;
  }
  let reason = "requests of before the last change may still be under way";
  for (let leftMs = settleMs; leftMs > 0; ) {
    onEvent({ type: "settling", leftMs, reason });
    const pauseMs = Math.min(ASK_EVERY_MS, leftMs);
    await clock.sleep(pauseMs, signal);
    const next = await untilAsked(client, ask, options);
    await assertNotRenewed(client, options, ignored);
    leftMs -= pauseMs;
    if (next.wasMissing || next.answers.processes !== answers.processes) {
      leftMs = settleMs;
      reason = next.wasMissing ? "an API server did not answer" : "an API server has joined, left or started anew";
    }
    answers = next.answers;
    if (leftMs > 0 && clock.monotonic() - start > settleMs + MISSING_MS) throw new ApiServerMissing(reason);
  }
  onEvent({ type: "settled", isLongPast: false });
  return answers;
}

/** Asks until every API server answers. Whom it waits for is told each time that one is missed. */
async function untilAsked<A>(
  { clock }: Client,
  ask: () => Promise<A>,
  { onEvent, signal }: SettleOptions,
): Promise<{ readonly answers: A; readonly wasMissing: boolean }> {
  const start = clock.monotonic();
  let wasMissing = false;
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
    try {
      return { answers: await ask(), wasMissing };
    } catch (error) {
      signal.throwIfAborted();
      const isOver = clock.monotonic() - start > MISSING_MS;
      if (isOver || !(error instanceof ApiServerMissing || mayPass(error))) throw error;
      onEvent({ type: "waiting", for: "apiServer", reason: messageOf(error) });
      wasMissing = true;
    }
    await clock.sleep(pauseMs, signal);
  }
}

/** When the identity Leases that are to be ignored were renewed. */
async function renewals(client: Client, { ignored = [], signal }: SettleOptions): Promise<ReadonlyMap<string, string>> {
  if (ignored.length === 0) return new Map();
  const leases = await identityLeases(client, {}, signal);
  return new Map(
    leases
      .filter(({ metadata }) => ignored.includes(metadata.name))
      .map(({ metadata, spec }) => [metadata.name, String(spec?.renewTime)]),
  );
}

async function assertNotRenewed(
  client: Client,
  options: SettleOptions,
  before: ReadonlyMap<string, string>,
): Promise<void> {
  if (before.size === 0) return;
  for (const [name, renewTime] of await renewals(client, options)) {
    if (before.get(name) !== renewTime) {
      const text = "it has renewed its identity Lease, so its API server lives";
      throw new KsvmError("Usage", `Cannot ignore the API server "${name}": ${text}`);
    }
  }
}

/** A change that is older than this by two clocks is past, and its writes with it. Clocks may be wrong by minutes. */
const LONG_PAST_MS = 3 * 3_600_000;

/** The earlier one of the clock of an API server and that of this machine, in milliseconds since the Unix epoch. */
async function oldestClock(client: Client, signal: AbortSignal): Promise<number> {
  const { date } = await retry(client, () => client.request<object>("GET", "/version", { signal }), { signal });
  return Math.min(date ?? Number.NEGATIVE_INFINITY, client.clock.now());
}

/**
 * When the spec of a CRD last changed, in milliseconds since the Unix epoch, by its managedFields. Now where they do not
 * tell: the entry of the client that wrote `spec.versions` last may be gone.
 */
function lastSpecChange({ metadata }: Crd): number {
  const entries = (metadata.managedFields ?? []).filter(
    ({ fieldsV1, subresource }) => subresource === undefined && fieldsV1?.["f:spec"] !== undefined,
  );
  const isKnown = entries.some(({ fieldsV1 }) => Object.hasOwn(fieldsV1?.["f:spec"] as object, "f:versions"));
  const times = entries.map(({ time }) => Date.parse(time ?? ""));
  const last = Math.max(...times, Date.parse(metadata.creationTimestamp ?? ""));
  return !isKnown || Number.isNaN(last) ? Number.POSITIVE_INFINITY : last;
}
