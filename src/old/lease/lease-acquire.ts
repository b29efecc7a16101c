import { createHash } from "node:crypto";
import { holderOf, type Lease, LEASE_KIND } from "../../api/lease.ts";
import type { Clock } from "../../clock.ts";
import { KsvmError } from "../../errors.ts";
import { isNamespaceMissing, isNotFound } from "../kube/absent.ts";
import { type ApiClient, isConflict } from "../kube/client.ts";
import { LEASES } from "../kube/resources.ts";
import { MANAGED_LABELS } from "../freeze/guard.ts";
import { LoopPace } from "../retry/loop-pace.ts";
import type { Retrier } from "../retry/retrier.ts";
import { heldLeaseIn, leasePatch, type Moment, microTime, momentOf } from "./lease-write.ts";

/** Which Lease to take, and for whom. */
export interface RunLeaseOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly retrier: Retrier;
  readonly namespace: string;
  readonly name: string;
  readonly identity: string;
  readonly signal: AbortSignal;
  /** Told that another holder's Lease is being watched to see whether it lives. */
  readonly onContended?: (holder: string) => void;
  /** Told that another holder's Lease is taken over, which that one did not give up. */
  readonly onTakeOver?: (holder: string) => void;
  /** Whether a holder is known to be dead, so that its Lease need not be watched. @default none is */
  readonly isDead?: (holder: string) => boolean;
  /** Throws where the run may not write any more although it holds its Lease: its replica does not lead. @default it always may */
  readonly assertLeading?: () => void;
}

/** What taking a Lease that is there writes into its annotations. */
export type AnnotationsFor = (found: Lease) => Readonly<Record<string, string>>;

/** After this many seconds without a renewal a Lease may be taken over; client-go's default. */
const DURATION_SECONDS = 15;
/** No run asks for more; whatever a Lease says, no run waits longer. */
const MAX_DURATION_SECONDS = 60;
const OBSERVE_POLL_MS = 500;
/** How often it is tried again, and how soon, where other clients write the Lease at the same time. */
const MAX_RACES = 20;
const MIN_RACE_MS = 100;
const MAX_RACE_MS = 2_000;
const MAX_NAME_LENGTH = 253;
const NAME_PREFIX = "ksvm-migrate.";

/** The name of the Lease of a run on a resource. A Lease's name may have 253 characters, a CRD's has up to 253, too. */
export function leaseNameOf(resource: string): string {
  const name = `${NAME_PREFIX}${resource}`;
  return name.length <= MAX_NAME_LENGTH ? name : `${NAME_PREFIX}${createHash("sha256").update(resource).digest("hex")}`;
}

/** The resource of a run's Lease, of one with a very long name its digest; `undefined` for any other Lease. */
export function resourceOfLease(name: string): string | undefined {
  return name.startsWith(NAME_PREFIX) ? name.slice(NAME_PREFIX.length) : undefined;
}

/**
 * Creates the Lease or takes it over from a holder that released it or stopped renewing it. Whether a holder lives is
 * judged by watching the Lease for its whole duration, never by comparing clocks.
 *
 * @param annotationsFor what is written into the annotations of the Lease as it is taken. @default nothing
 * @returns the Lease, and when it was confirmed
 * @throws {KsvmError} AlreadyMigrating where its holder lives; NotFound where the namespace does not exist; Conflict where
 *   other clients write the Lease again and again.
 */
export async function acquireLease(
  options: RunLeaseOptions,
  annotationsFor: AnnotationsFor = () => ({}),
): Promise<{ readonly lease: Lease; readonly confirmedAt: Moment }> {
  const { client, clock, namespace, name, retrier, signal } = options;
  const pace = new LoopPace({ clock, minMs: MIN_RACE_MS, maxMs: MAX_RACE_MS });
  for (let races = 0; races < MAX_RACES; races++) {
    await pace.turn(signal);
    const found = await retrier.run(() => client.find<Lease>(LEASES, { namespace, name }, { signal }), signal);
    const holder = holderOf(found);
    const isLeft =
      found === undefined || isFree(holder, options)
        ? holder !== "" && holder !== options.identity
        : await hasExpired(found, holder, options);
    if (isLeft) {
      options.onTakeOver?.(holder);
    }
    const confirmedAt = momentOf(clock);
    const lease = await takeLease(found, options, annotationsFor);
    if (lease !== undefined) {
      return { lease, confirmedAt };
    }
  }
  throw new KsvmError("Conflict", `Cannot take Lease "${namespace}/${name}": other clients write it again and again`);
}

/** Our own identity means that an attempt to take it arrived though its answer was lost. */
function isFree(holder: string, { identity, isDead }: RunLeaseOptions): boolean {
  return holder === "" || holder === identity || isDead?.(holder) === true;
}

/** @returns whether its holder let it expire; `false` where that holder gave it up, or another client took it, before that */
async function hasExpired(found: Lease, holder: string, options: RunLeaseOptions): Promise<boolean> {
  const { client, clock, namespace, name, retrier, signal } = options;
  options.onContended?.(holder);
  const deadline = clock.monotonic() + observedMsOf(found);
  while (clock.monotonic() < deadline) {
    await clock.sleep(OBSERVE_POLL_MS, signal);
    const now = await retrier.run(() => client.find<Lease>(LEASES, { namespace, name }, { signal }), signal);
    if (now === undefined || now.spec?.holderIdentity !== holder) {
      return false;
    }
    if (now.metadata.resourceVersion !== found.metadata.resourceVersion) {
      const text = `Cannot start: "${holder}" is migrating it (Lease "${namespace}/${name}"); wait for it to end`;
      throw new KsvmError("AlreadyMigrating", text);
    }
  }
  return true;
}

/** For how long the Lease of a live run may stay as it is, in milliseconds. */
export function observedMsOf(lease: Lease | undefined): number {
  return Math.min(lease?.spec?.leaseDurationSeconds ?? DURATION_SECONDS, MAX_DURATION_SECONDS) * 1_000;
}

/** `undefined` if another client was quicker. */
async function takeLease(
  found: Lease | undefined,
  options: RunLeaseOptions,
  annotationsFor: AnnotationsFor,
): Promise<Lease | undefined> {
  const { client, clock, identity, namespace, name, retrier, signal } = options;
  const now = microTime(clock);
  const spec = {
    holderIdentity: identity,
    leaseDurationSeconds: DURATION_SECONDS,
    acquireTime: now,
    renewTime: now,
    leaseTransitions: found === undefined ? 0 : (found.spec?.leaseTransitions ?? 0) + 1,
  };
  const write = (): Promise<Lease> => {
    if (found === undefined) {
      const metadata = { namespace, name, labels: MANAGED_LABELS };
      return client.create<Lease>(LEASES, { ...LEASE_KIND, metadata, spec }, { signal });
    }
    const patch = leasePatch(found, { spec, annotations: annotationsFor(found) });
    return client.patch<Lease>(LEASES, { namespace, name }, patch, { signal });
  };
  try {
    return await retrier.run(async () => heldLeaseIn(await write(), name, identity), signal);
  } catch (error) {
    // A 404 to a create is never about the Lease: nothing would ever come of trying again.
    if (isConflict(error) || (found !== undefined && isNotFound(error))) {
      return undefined;
    }
    throw isNamespaceMissing(error) ? namespaceMissing(options) : error;
  }
}

function namespaceMissing({ namespace, name }: RunLeaseOptions): KsvmError {
  const text = `Cannot create Lease "${namespace}/${name}": namespace "${namespace}" does not exist`;
  return new KsvmError("NotFound", `${text}; create it, or name another one (--lease-namespace)`);
}
