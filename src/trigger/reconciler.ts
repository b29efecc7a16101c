import type { Logger } from "pino";
import { HEARTBEAT_LIMIT_MS, type CrdMode } from "../api/migration.ts";
import type { Clock } from "../clock.ts";
import { messageOf } from "../errors.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { apply, type ApplyContext, forget } from "./apply.ts";
import { CreationPace } from "./creation-pace.ts";
import { CrdPatience } from "./crd-patience.ts";
import type { CrdSights } from "./crd-sights.ts";
import { type Decision, decide } from "./decide.ts";
import { CONFLICT_RETRY_MS, lookRetryMs } from "./look-retry.ts";
import type { MigrationIndex } from "./migration-index.ts";
import type { Situation, StateFacts } from "./next-status.ts";
import type { Observer } from "./observer.ts";
import type { TriggerReport } from "./report.ts";
import { OwnLooks } from "./own-looks.ts";
import { retireStorageState } from "./retire.ts";
import { SeenEnds } from "./seen-ends.ts";
import type { SharedClock } from "../old/kube/server-clock.ts";
import { StateReader } from "./state-reader.ts";
import type { Observed } from "./survey.ts";
import { goneBy, isOptedOut, orphansBy } from "./what-is-gone.ts";
import { lookedOf, type TriggerWatch } from "./trigger-watch.ts";
import { logDecision, SurveyLog } from "./trigger-log.ts";
import type { WorkQueue } from "./work-queue.ts";

/** What a {@link Reconciler} works with. */
export interface ReconcilerOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly intervalMs: number;
  /** As in {@link Situation}. */
  readonly crdMode: CrdMode;
  /** What heartbeats are written and judged by. */
  readonly sharedClock: SharedClock;
  readonly observer: Observer;
  readonly index: MigrationIndex;
  readonly queue: WorkQueue;
  readonly sights: CrdSights;
  /** Watches it, for metrics. */
  readonly watch: TriggerWatch;
  /** Told after each poll which resources are gone. @default none */
  readonly onPoll?: ((isGone: (name: string) => boolean) => void) | undefined;
}

interface Seen {
  readonly observed: Observed;
  readonly state: StateFacts | undefined;
}

/** Between two looks at API servers that have not followed a CRD. */
const CRD_LOOK_MS = 200;

/** Brings StorageStates and migrations in line with what the API servers show, one resource after the other. */
export class Reconciler {
  readonly #options: ReconcilerOptions;
  readonly #states: StateReader;
  readonly #surveyLog: SurveyLog;
  /** What the last poll saw and has not been looked at since. */
  readonly #polled = new Map<string, Seen>();
  readonly #failures = new Map<string, number>();
  readonly #sights: CrdSights;
  readonly #patience: CrdPatience;
  readonly #looks: OwnLooks;
  readonly #ends: SeenEnds;
  readonly #waiting = new Map<string, string>();
  readonly #creations: CreationPace;
  #shared: ReadonlySet<string> = new Set();
  /** What there is to look after: it was in the last poll, or in a look since. */
  #known = new Set<string>();
  #report: Omit<TriggerReport, "waiting"> = { leftOut: [], unavailable: [] };

  constructor(options: ReconcilerOptions) {
    this.#options = options;
    this.#creations = new CreationPace(options.clock);
    this.#sights = options.sights;
    this.#patience = new CrdPatience(options.clock);
    this.#looks = new OwnLooks(options.clock);
    this.#ends = new SeenEnds(options.clock);
    this.#states = new StateReader(options);
    this.#surveyLog = new SurveyLog(options.logger);
  }

  /** What is left out, hidden or waiting, and why. */
  report(): TriggerReport {
    const waiting = [...this.#waiting].map(([name, reason]) => ({ name, reason }));
    return { ...this.#report, waiting };
  }

  /**
   * Reads the whole of discovery, to be worked off by {@link nextOfPoll}.
   * @throws {ApiError | TransportError | KsvmError} where it cannot be read.
   */
  async poll(signal: AbortSignal): Promise<void> {
    const { clock, observer, sharedClock, watch } = this.#options;
    const refreshed = sharedClock.refresh(signal);
    const [, observation] = await this.#sights.notedAfter(refreshed, () => observer.everything(signal));
    const states = await this.#states.all(signal);
    this.#surveyLog.write(observation);
    this.#shared = new Set(observation.leftOut.filter(({ isShared }) => isShared).map(({ name }) => name));
    this.#report = { polledAt: clock.now(), leftOut: observation.leftOut, unavailable: observation.unavailable };
    const names = new Set(observation.observed.map(({ name }) => name));
    this.#known = new Set([...names, ...observation.crds.keys()]);
    [this.#sights, this.#patience, this.#looks, this.#ends].forEach((one) =>
      one.keepOnly((name) => this.#known.has(name)),
    );
    watch.polled(clock.now(), names);
    this.#options.onPoll?.(goneBy(observation));
    // What was not looked at since the last poll keeps its place before the others.
    for (const remembered of [this.#polled, this.#waiting]) {
      [...remembered.keys()].filter((one) => !names.has(one)).forEach((name) => remembered.delete(name));
    }
    observation.observed.forEach((one) => this.#polled.set(one.name, { observed: one, state: states.get(one.name) }));
    const isOrphan = orphansBy(observation);
    for (const [name, state] of states) {
      if (isOrphan(name, state) || isOptedOut(name, observation)) {
        this.#options.queue.add(name);
      }
    }
  }

  /** Works off one resource of the last poll; `false` where none is left. */
  async nextOfPoll(signal: AbortSignal): Promise<boolean> {
    const [next] = this.#polled;
    if (next === undefined) {
      return false;
    }
    const [name, seen] = next;
    this.#polled.delete(name);
    const { queue } = this.#options;
    if (queue.takeOverdue(name)) {
      // It changed since, and thousands of others are before it in the queue.
      await this.lookAt(name, signal);
      return true;
    }
    if (queue.isDue(name)) {
      // It changed since, and is looked at again in a moment.
      return true;
    }
    await this.#attempt(name, () => this.#reconcile(seen, { isFresh: false, signal }), signal);
    return true;
  }

  /**
   * Has a resource looked at whose migrations changed. Users may create migrations of thousands of resources that do not
   * exist, which would hold up the others; of those the next poll has what there is by then.
   */
  onMigration(name: string): void {
    if (this.#known.has(name)) {
      this.#options.queue.add(name);
    }
  }

  /** Looks at one resource now. */
  async lookAt(name: string, signal: AbortSignal): Promise<void> {
    if (!this.#shared.has(name)) {
      await this.#attempt(name, () => this.#lookAt(name, signal), signal);
    }
  }

  async #lookAt(name: string, signal: AbortSignal): Promise<void> {
    const { client, index, logger, observer } = this.#options;
    // Read first, so that the write fails if anybody writes between this and the look at the API servers.
    const read = this.#states.one(name, signal);
    const refreshed = Promise.allSettled([read]).then(() => this.#options.sharedClock.refresh(signal));
    const both = Promise.all([read, refreshed]);
    const [[state], observation] = await this.#sights.notedAfter(both, () => observer.resource(name, signal));
    const observed = observation.observed.find((one) => one.name === name);
    this.#polled.delete(name);
    if (observed !== undefined) {
      this.#known.add(name);
      await this.#reconcile({ observed, state }, { isFresh: true, signal });
    } else if (state !== undefined && isOptedOut(name, observation)) {
      // Nothing looks after it any more, and its last value would be believed.
      await retireStorageState(client, { name, uid: state.uid }, signal);
      this.#forget(name);
      logger.info({ resource: name }, "Deleted a StorageState: the trigger is off for this resource");
    } else if (state !== undefined && orphansBy(observation)(name, state)) {
      await forget(this.#context(signal), name, { state, migrations: index.of(name) });
      this.#forget(name);
    } else if (observation.crds.has(name) && observation.leftOut.length === 0) {
      this.#hasPatience(name);
    }
  }

  async #reconcile(
    { observed, state }: Seen,
    { isFresh, signal }: { readonly isFresh: boolean; readonly signal: AbortSignal },
  ): Promise<void> {
    const { index, logger, crdMode, queue, sharedClock, watch } = this.#options;
    const { name } = observed;
    const now = sharedClock.now();
    const migrations = index.of(name);
    const situation: Situation = {
      observed,
      state,
      ...(observed.crd === undefined ? {} : { firstSeen: this.#sights.saw(observed.crd) }),
      migrations,
      endedForMs: this.#ends.saw(name, migrations),
      now,
      isFollowed: this.#looks.isRecent(name, state, now),
      staleAfterMs: HEARTBEAT_LIMIT_MS,
      crdMode,
    };
    const decision = this.#creations.paced(name, decide(situation));
    if (!isFresh && needsAnotherLook(decision, observed)) {
      queue.add(name);
      return;
    }
    if (decision.cause === "disagreement" && observed.crd !== undefined && this.#hasPatience(name)) {
      return;
    }
    if (decision.cause === "disagreement") {
      watch.disagreed(name);
    } else {
      this.#patience.followed(name);
    }
    this.#looks.looked(name, await apply(this.#context(signal), situation, decision), sharedClock.now());
    this.#sights.written(name);
    logDecision(logger, name, decision, this.#waiting.get(name));
    this.#remember(situation, decision);
  }

  #remember(situation: Situation, decision: Decision): void {
    const { queue, watch } = this.#options;
    const { name } = situation.observed;
    const { create, lookAgainMs, waiting } = decision;
    watch.looked(name, lookedOf(situation, decision));
    if (create !== undefined) {
      this.#creations.created(name);
      if (create.attempt > 1) watch.retried("migration");
    }
    if (waiting === undefined) {
      this.#waiting.delete(name);
    } else {
      this.#waiting.set(name, waiting);
    }
    if (lookAgainMs !== undefined) {
      queue.add(name, lookAgainMs);
    }
  }

  #forget(name: string): void {
    this.#waiting.delete(name);
    this.#options.watch.looked(name, undefined);
  }

  /** Whether API servers may be given another moment to follow a CRD; they are looked at again then. */
  #hasPatience(name: string): boolean {
    const isPatient = this.#patience.isPatientWith(name);
    if (isPatient) {
      this.#options.queue.add(name, CRD_LOOK_MS);
    }
    return isPatient;
  }

  #context(signal: AbortSignal): ApplyContext {
    const { client, index, intervalMs } = this.#options;
    // Looks between two polls write no heartbeat by themselves.
    return { client, index, heartbeatMs: intervalMs / 2, signal };
  }

  async #attempt(name: string, work: () => Promise<void>, signal: AbortSignal): Promise<void> {
    const { logger, queue, watch } = this.#options;
    try {
      await work();
      this.#failures.delete(name);
    } catch (error) {
      if (signal.aborted) {
        return;
      }
      const failures = (this.#failures.get(name) ?? 0) + 1;
      this.#failures.set(name, failures);
      const delayMs = lookRetryMs(error, failures);
      if (delayMs !== CONFLICT_RETRY_MS) {
        const isNews = this.#waiting.get(name) !== messageOf(error);
        logger[isNews ? "warn" : "debug"]({ err: error, resource: name }, "Cannot look after a resource; trying again");
        this.#waiting.set(name, messageOf(error));
      }
      watch.retried("look");
      queue.add(name, delayMs);
    }
  }
}

/**
 * What a poll saw may be seconds old: too old for a word that all is done, for one that a CRD is not followed, and for one
 * that its storedVersions speak against a migration that ended since.
 */
function needsAnotherLook({ cause }: Decision, { crd }: Observed): boolean {
  return cause === "completed" || (crd !== undefined && (cause === "disagreement" || cause === "storedVersions"));
}
