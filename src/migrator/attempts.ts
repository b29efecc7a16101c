import { KsvmError, messageOf } from "../errors.ts";
import { ApiServerMissing } from "../apiservers/find.ts";
import { EpochChanged } from "../apiservers/converge.ts";
import type { Client } from "../kube/client.ts";
import { mayPass, whose } from "../kube/errors.ts";
import type { Resource } from "../kube/objects.ts";
import { InTreeRunning, runningInTree } from "./in-tree.ts";
import { Limiter } from "./limiter.ts";
import { rewriteAll, type RewriteOptions, Stalled, type Target } from "./rewrite.ts";
import type { Checkpoint, Position } from "./run-lease.ts";
import type { MigrateOptions, MigrationEvent, Tally } from "./types.ts";

/** One run over all of its attempts. */
export interface Run {
  readonly name: string;
  /** Unique to this run. */
  readonly identity: string;
  readonly emit: (event: MigrationEvent) => void;
  /** Whether it has work to do. Once it has, a storedVersions that another client prunes does not end it. */
  isDue: boolean;
  /** How often it began again because what it rests on changed. */
  changes: number;
  /**
   * When it last got further, on the monotonic clock: when an object was rewritten, or the checkpoint moved on. What it
   * waits for other runs and for the settle time is added, so that it does not count as idle.
   */
  progressAt: number;
}

/** @param onEvent tells of every resource; the run tells of its own */
export function newRun(client: Client, name: string, { identity, onEvent }: MigrateOptions): Run {
  const own = Math.floor(client.random() * 2 ** 48).toString(36);
  return {
    name,
    identity: `${identity}-${own}`,
    emit: (event) => onEvent(event, name),
    isDue: false,
    changes: 0,
    progressAt: client.clock.monotonic(),
  };
}

/** Milliseconds without progress after which a run gives up. */
export const DEFAULT_MAX_IDLE_MS = 900_000;
const MAX_CHANGES = 5;
/** An API server is missed for as long as its identity Lease lives. */
const MAX_MISSING_MS = 70 * 60_000;

/** Whether another attempt may succeed. Nobody judges whether a change of the CRD would have mattered. */
export function mayBeginAgain(
  { changes, progressAt }: Pick<Run, "changes" | "progressAt">,
  error: unknown,
  now: number,
  maxIdleMs = DEFAULT_MAX_IDLE_MS,
): boolean {
  if (error instanceof EpochChanged) return changes <= MAX_CHANGES;
  if (error instanceof ApiServerMissing) return now - progressAt < MAX_MISSING_MS;
  // A path that is not served: an API server has not observed the CRD yet, or its spec has just changed.
  const isGone = whose(error) === "gone";
  // An API server was silent, or the pods of the webhook roll.
  const isUnproven = error instanceof KsvmError && error.code === "FreezeNotProven";
  const isPassing = mayPass(error) && whose(error) !== "rights";
  const isWorthIt = isGone || isUnproven || isPassing || error instanceof Stalled || error instanceof InTreeRunning;
  return isWorthIt && now - progressAt < maxIdleMs;
}

/** What is told where a run begins again after an error. */
export function beginsAgain(error: unknown): MigrationEvent {
  const reason = messageOf(error);
  if (error instanceof InTreeRunning) return { type: "waiting", for: "inTree", reason };
  return whose(error) === "webhook" ? { type: "waiting", for: "webhook", reason } : { type: "beginsAgain", reason };
}

/** Milliseconds before the next attempt. */
export function pauseMs(changes: number): number {
  return 5_000 * Math.max(1, changes);
}

/**
 * Lets Kubernetes' own migrator go first, but not for ever.
 * @throws {InTreeRunning} while it works on the resource: the attempt ends, and others go on meanwhile
 */
export async function yieldToInTree(
  client: Client,
  run: Run,
  resource: Pick<Resource, "group" | "plural">,
  { maxIdleMs = DEFAULT_MAX_IDLE_MS, signal }: MigrateOptions,
): Promise<void> {
  const running = await runningInTree(client, resource, signal);
  if (running === undefined) return;
  if (client.clock.monotonic() - run.progressAt < maxIdleMs) throw running;
  run.emit({ type: "warning", message: `${messageOf(running)}; going on beside it` });
}

/** What a run that writes hands over, and a dry run does not. */
interface Work extends Pick<RewriteOptions, "assertCurrent"> {
  /** What an earlier attempt left for the same epoch. */
  readonly resume: Checkpoint | undefined;
  /** Told where a later attempt may go on. */
  readonly onPosition: (position: Position) => void;
}

/** Rewrites all objects of a run, tells how far it is, and notes where it got further. */
export async function rewrite(
  client: Client,
  run: Run,
  target: Target,
  { dryRun = false, maxInFlight, maxQps, signal }: MigrateOptions,
  { assertCurrent, onPosition, resume }: Partial<Work> = {},
): Promise<Tally> {
  if (resume !== undefined) run.emit({ type: "resumed", watermark: resume.watermark });
  let rewritten = 0;
  let token = resume?.continueToken;
  const told = (tally: Tally, continueToken?: string): void => {
    // What is listed, skipped or failed can be that in every attempt: it brings the run no further.
    const isFurther = continueToken !== undefined && continueToken !== token;
    if (tally.rewritten > rewritten || isFurther) run.progressAt = client.clock.monotonic();
    if (isFurther) token = continueToken;
    ({ rewritten } = tally);
    run.emit({ type: "progress", tally, continueToken });
  };
  return rewriteAll(client, target, {
    limiter: new Limiter(client, { maxInFlight, maxQps }),
    resume,
    dryRun,
    signal,
    assertCurrent,
    onPage: (position, tally) => {
      onPosition?.(position);
      told(tally, position.continueToken);
    },
    onProgress: (tally) => told(tally),
  });
}
