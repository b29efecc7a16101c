import { messageOf } from "../../errors.ts";
import { failureKindOf } from "../kube/failure.ts";
import { InTreeAtWork, inTreeObjection, inTreeRunning, StorageMigratingStuck } from "../../in-tree/in-tree-guard.ts";
import { namingAllMissing } from "./access-check.ts";
import { migrate, neededBy } from "./migrate.ts";
import type { MigrationResult } from "./result.ts";
import type { RunContext } from "./run-context.ts";

/** How often a run looks whether Kubernetes' own migrator began, in milliseconds. */
const LOOK_EVERY_MS = 5_000;
/** Milliseconds until a run that waits for Kubernetes' own migrator tries again. */
const RETRY_AFTER_MS = 5_000;
/** How long a condition that nothing explains is waited for, in milliseconds: its migration may have ended just now. */
export const STUCK_GRACE_MS = 60_000;

/** Failures to look of another kind than an outage end the run after so many milliseconds: they may be the API server's. */
const BLIND_MS = 60_000;

type Context = Pick<RunContext, "client" | "clock" | "retrier" | "signal"> & {
  /** For the look before `work` begins. @default `retrier` */
  readonly beforehand?: RunContext["retrier"];
};

/**
 * Runs `work` on a resource that Kubernetes' own migrator leaves alone, and ends it where that migrator begins.
 * @param resource `plural.group`
 * @throws {InTreeAtWork} before `work` begins, or as the reason of the signal that `work` is handed.
 * @throws {StorageMigratingStuck} before `work` begins.
 * @throws whatever `work` throws; the context signal's reason where it is aborted.
 */
export async function besideInTree<T>(
  context: Context,
  resource: string,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const { client, retrier, signal, beforehand = retrier } = context;
  const objection = await beforehand.run(() => inTreeObjection(client, resource, signal), signal);
  if (objection !== undefined) {
    throw objection;
  }
  const abort = new AbortController();
  const ended = new AbortController();
  const looking = lookOut(context, resource, { abort, ended: ended.signal });
  try {
    return await work(AbortSignal.any([signal, abort.signal]));
  } catch (error) {
    signal.throwIfAborted();
    abort.signal.throwIfAborted();
    throw error;
  } finally {
    ended.abort();
    await looking;
  }
}

/**
 * Migrates one resource as `migrate()` does, and waits, without a freeze, while Kubernetes' own migrator is at work on it.
 * @param waitMs how long it is waited for, in milliseconds
 * @throws {InTreeAtWork} after that time; {StorageMigratingStuck} after a minute; as `migrate()` else.
 */
export async function migrateBesideInTree(context: RunContext, name: string, waitMs: number): Promise<MigrationResult> {
  const { clock, emit, signal } = context;
  let since: number | undefined;
  let hasBegun = false;
  for (;;) {
    try {
      return await namingAllMissing(context, {
        name,
        wanted: () => neededBy(context, name),
        hasBegun: () => hasBegun,
        work: () =>
          besideInTree(context, name, (running) => {
            since = undefined;
            hasBegun = true;
            return migrate({ ...context, signal: running }, name);
          }),
      });
    } catch (error) {
      const isFirst = since === undefined;
      since ??= clock.monotonic();
      if (clock.monotonic() - since >= patienceMs(error, waitMs)) {
        throw error;
      }
      if (isFirst) {
        emit({ type: "yielding", reason: messageOf(error) });
      }
    }
    await clock.sleep(RETRY_AFTER_MS, signal);
  }
}

function patienceMs(error: unknown, waitMs: number): number {
  if (error instanceof InTreeAtWork) {
    return waitMs;
  }
  return error instanceof StorageMigratingStuck ? Math.min(STUCK_GRACE_MS, waitMs) : 0;
}

async function lookOut(
  { client, clock, retrier, signal }: Context,
  resource: string,
  run: { readonly abort: AbortController; readonly ended: AbortSignal },
): Promise<void> {
  const looking = AbortSignal.any([signal, run.ended]);
  let blindSince: number | undefined;
  while (!looking.aborted && !run.abort.signal.aborted) {
    await clock.sleep(LOOK_EVERY_MS, looking).catch(() => undefined);
    try {
      const running = await retrier.run(() => inTreeRunning(client, resource, looking), looking);
      blindSince = undefined;
      if (running !== undefined) {
        throw new InTreeAtWork(running.metadata.name);
      }
    } catch (error) {
      blindSince = failureKindOf(error) === undefined ? undefined : (blindSince ?? clock.monotonic());
      const mayPass = blindSince !== undefined && clock.monotonic() - blindSince < BLIND_MS;
      if (!looking.aborted && !mayPass) {
        run.abort.abort(error);
      }
    }
  }
}
