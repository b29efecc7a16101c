import { holderOf, type Lease, LEASE_KIND } from "../api/lease.ts";
import { SUSPEND_LEASE } from "../api/migration.ts";
import { MANAGED_BY, MANAGED_BY_LABEL, SUSPEND_ALL_ANNOTATION } from "../api/names.ts";
import { isNewer } from "../api/resource-version.ts";
import type { Clock } from "../clock.ts";
import { KsvmError } from "../errors.ts";
import { isAbsent } from "../kube/absent.ts";
import type { CallOptions } from "../kube/call-options.ts";
import { type ApiClient, isConflict } from "../kube/client.ts";
import { listNamed, type NamedList } from "../kube/list-named.ts";
import { LEASES, MERGE_PATCH } from "../kube/resources.ts";
import { watchObject } from "../kube/watch.ts";
import { withDeadline } from "../retry/deadline.ts";
import { LoopPace } from "../retry/loop-pace.ts";

/** What suspends all migrations, those that come later too. */
export interface SuspendMark {
  /** RFC 3339. */
  readonly since: string;
  /** Who set it, as far as that is known. */
  readonly by?: string;
}

/** The mark that a Lease stands for; `undefined` where it has none. */
function markOf(lease: Lease | undefined): SuspendMark | undefined {
  const since = lease?.metadata.annotations?.[SUSPEND_ALL_ANNOTATION];
  const by = holderOf(lease);
  return since === undefined ? undefined : { since, ...(by === "" ? {} : { by }) };
}

/**
 * Reads the mark.
 * @throws {ApiError | TransportError}; {DoubtfulAnswer} where the answer is no list.
 */
export async function readSuspendMark(
  client: ApiClient,
  namespace: string,
  options: CallOptions = {},
): Promise<SuspendMark | undefined> {
  const { object } = await listNamed<Lease>(client.transport, LEASES, { namespace, name: SUSPEND_LEASE }, options);
  return markOf(object);
}

/** So often a mark is set or taken away that another client changes at the very same moment. */
const MAX_TRIES = 5;

/**
 * Sets the mark; one that is there stays as it is.
 * @returns whether it was not there before
 * @throws {ApiError | TransportError} 404 where the namespace does not exist; Conflict where others write it all the time.
 */
export async function setSuspendMark(
  client: ApiClient,
  wanted: { readonly namespace: string; readonly mark: SuspendMark },
  options: CallOptions = {},
): Promise<boolean> {
  return whileItChanges(() => trySetMark(client, wanted, options));
}

/** Tries again where another client wrote the Lease, or took it away, in between. */
async function whileItChanges<T>(change: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await change();
    } catch (error) {
      const hasChanged = isConflict(error) || isAbsent(error, SUSPEND_LEASE);
      if (!hasChanged || tries === MAX_TRIES) {
        throw error;
      }
    }
  }
}

/** @throws {ApiError} Conflict or NotFound where another client wrote it, or took it away, in between: it may not be there now. */
async function trySetMark(
  client: ApiClient,
  { namespace, mark: { by, since } }: { readonly namespace: string; readonly mark: SuspendMark },
  { signal }: CallOptions,
): Promise<boolean> {
  const annotations = { [SUSPEND_ALL_ANNOTATION]: since };
  const spec = { holderIdentity: by ?? null };
  const metadata = { namespace, name: SUSPEND_LEASE, annotations, labels: { [MANAGED_BY_LABEL]: MANAGED_BY } };
  const lease = { ...LEASE_KIND, metadata, spec };
  const { object } = await listNamed<Lease>(client.transport, LEASES, metadata, { signal });
  if (object === undefined) {
    await client.create(LEASES, lease, { signal });
    return true;
  }
  if (markOf(object) !== undefined) {
    return false;
  }
  const { resourceVersion, uid } = object.metadata;
  const body = { metadata: { uid, resourceVersion, annotations }, spec };
  await client.patch(LEASES, metadata, { type: MERGE_PATCH, body }, { signal });
  return true;
}

/**
 * Takes the mark away.
 * @returns whether it was there
 * @throws {ApiError | TransportError} Conflict where others write it all the time.
 */
export function clearSuspendMark(client: ApiClient, namespace: string, options: CallOptions = {}): Promise<boolean> {
  return whileItChanges(() => tryClearMark(client, namespace, options));
}

/** @throws {ApiError} Conflict where another client wrote it in between: it may have set the mark. */
async function tryClearMark(client: ApiClient, namespace: string, { signal }: CallOptions): Promise<boolean> {
  const ref = { namespace, name: SUSPEND_LEASE };
  const { object } = await listNamed<Lease>(client.transport, LEASES, ref, { signal });
  if (object === undefined) {
    return false;
  }
  const { resourceVersion, uid } = object.metadata;
  await client.delete(LEASES, ref, { preconditions: { uid, resourceVersion }, signal });
  return markOf(object) !== undefined;
}

/** What {@link followSuspendMark} needs. */
export interface FollowSuspendMarkOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly namespace: string;
  /** Told of the mark as it is first, and whenever it may have changed. */
  readonly onMark: (mark: SuspendMark | undefined) => void;
  /** Told why it cannot be read; it is tried again. */
  readonly onError: (error: unknown) => void;
  readonly signal: AbortSignal;
}

/** A watch that hears nothing is not trusted for longer than this, in milliseconds: a run that is suspended stops within seconds. */
const RELIST_MS = 10_000;
/** Milliseconds that an API server may take for a list while a watch is open: one that hangs would take more than a minute. */
const RELIST_TIMEOUT_MS = 5_000;
const MIN_INTERVAL_MS = 1_000;
const MAX_INTERVAL_MS = 10_000;

/** Follows the mark until the signal is aborted. */
export async function followSuspendMark(options: FollowSuspendMarkOptions): Promise<void> {
  const { clock, onError, signal } = options;
  const pace = new LoopPace({ clock, minMs: MIN_INTERVAL_MS, maxMs: MAX_INTERVAL_MS });
  while (!signal.aborted) {
    try {
      await pace.turn(signal);
      await listAndWatch(options, () => pace.reset());
    } catch (error) {
      if (!signal.aborted) {
        onError(error);
      }
    }
  }
}

async function listAndWatch(options: FollowSuspendMarkOptions, onListed: () => void): Promise<void> {
  const { onMark, signal } = options;
  let listed: NamedList<Lease> | undefined = await listMark(options, signal);
  while (listed !== undefined) {
    onMark(markOf(listed.object));
    onListed();
    listed = await watchUntilListed(options, listed.resourceVersion);
  }
}

/** Watches until a later list has answered: while one hangs, the watch may still tell. @returns that list */
async function watchUntilListed(
  options: FollowSuspendMarkOptions,
  resourceVersion: string,
): Promise<NamedList<Lease> | undefined> {
  const { client, clock, namespace, onError, onMark, signal } = options;
  const ended = new AbortController();
  const watching = AbortSignal.any([signal, ended.signal]);
  let newest = resourceVersion;
  let later: NamedList<Lease> | undefined;
  const relisted = relist(
    options,
    watching,
    () => newest,
    (answer, newestWhenAsked) => {
      // Where the watch told of a change since the list was asked for, the list may be older. Else it is newer, although its
      // resourceVersion is lower, as after etcd was restored from a backup.
      const isOlder = newest !== newestWhenAsked && isNewer(newest, answer.resourceVersion);
      if (!watching.aborted && !isOlder) {
        later = answer;
        ended.abort();
      }
    },
  );
  try {
    const watch = { namespace, name: SUSPEND_LEASE, resourceVersion, signal: watching, clock, onFailure: onError };
    for await (const event of watchObject<Lease>(client.transport, LEASES, watch)) {
      if (!watching.aborted && "object" in event) {
        newest = event.object.metadata.resourceVersion ?? newest;
        onMark(event.type === "DELETED" ? undefined : markOf(event.object));
      }
    }
  } finally {
    ended.abort();
    await relisted;
  }
  return later;
}

/** Lists every few seconds until the signal is aborted. A list that fails, or hangs, changes nothing. */
async function relist(
  options: FollowSuspendMarkOptions,
  signal: AbortSignal,
  newestOf: () => string,
  onAnswer: (answer: NamedList<Lease>, newestWhenAsked: string) => void,
): Promise<void> {
  const { clock, onError } = options;
  const pace = new LoopPace({ clock, minMs: RELIST_MS });
  try {
    // The first turn does not wait: it stands for the list that the watch began with.
    await pace.turn(signal);
    for (;;) {
      await pace.turn(signal);
      try {
        const limit = { clock, ms: RELIST_TIMEOUT_MS, signal, errorOf: noAnswer };
        const newestWhenAsked = newestOf();
        onAnswer(await withDeadline(limit, (within) => listMark(options, within)), newestWhenAsked);
      } catch (error) {
        signal.throwIfAborted();
        onError(error);
      }
    }
  } catch (error) {
    if (!signal.aborted) {
      throw error;
    }
  }
}

function noAnswer(): Error {
  const seconds = RELIST_TIMEOUT_MS / 1_000;
  return new KsvmError("ServerUnreachable", `Cannot look for Lease "${SUSPEND_LEASE}": no answer in ${seconds} s`);
}

function listMark({ client, namespace }: FollowSuspendMarkOptions, signal: AbortSignal): Promise<NamedList<Lease>> {
  return listNamed<Lease>(client.transport, LEASES, { namespace, name: SUSPEND_LEASE }, { signal });
}
