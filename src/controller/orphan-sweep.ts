import type { Logger } from "pino";
import type { PartialObjectMetadata } from "../api/meta.ts";
import { MANAGED_BY, MANAGED_BY_LABEL, OWNER_ANNOTATION } from "../api/names.ts";
import { type FreezeOwner, freezerOf, isSameRun, parseOwner } from "../api/owner.ts";
import type { Clock } from "../clock.ts";
import { KsvmError, messageOf } from "../errors.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { ApiError } from "../old/kube/errors.ts";
import { metadataPages } from "../old/kube/metadata-pages.ts";
import { CRDS, POLICIES, POLICY_BINDINGS, type Resource } from "../old/kube/resources.ts";
import { unlessForbidden } from "../old/kube/unless-forbidden.ts";
import { withDeadline } from "../old/retry/deadline.ts";
import type { CallContext } from "../old/retry/call-context.ts";
import { unfreeze } from "../old/freeze/freeze.ts";
import { guardedCrdOf } from "../old/freeze/freeze-policy.ts";
import { removePolicyGuard } from "../old/freeze/guard-install.ts";
import type { Retrier } from "../old/retry/retrier.ts";
import { holdRunLease } from "../old/lease/hold-run-lease.ts";
import type { RunLease } from "../old/lease/run-lease.ts";
import { isRunDead } from "../old/lease/run-liveness.ts";
import { type LeaseRef, runLeaseOf } from "../old/lease/run-lease-ref.ts";
import { ToldReasons } from "./told-reasons.ts";

/** What {@link sweepOrphans} needs. */
export interface OrphanSweepOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly retrier: Retrier;
  readonly logger: Logger;
  readonly identity: string;
  /** The namespace of the Leases that runs of this installation hold. */
  readonly namespace: string;
  readonly signal: AbortSignal;
  /** Whether a migration of this CRD will take its freeze over, or has it. */
  readonly isBusy: (crdName: string) => boolean;
  /** Whether the holder of a Lease is known to be dead. */
  readonly isDead: (holder: string) => boolean;
  /** Throws where this replica does not lead any more. */
  readonly assertLeading: () => void;
  /** What was logged already about a freeze that stays: it is said once. */
  readonly told: ToldReasons;
}

interface Orphan {
  readonly crdName: string;
  readonly owner: FreezeOwner;
  /** A run that was killed between the two has lifted its freeze, and left its policy. */
  readonly left: "freeze" | "policy";
}

type Found = Pick<OrphanSweepOptions, "client" | "retrier" | "signal">;

const PAGE_SIZE = 100;
/** Orphans that are looked at at the same time: a Lease is watched for 15 seconds and longer. */
const AT_ONCE = 16;
/** Between two sweeps, in milliseconds. */
const SWEEP_EVERY_MS = 60_000;
/** Milliseconds for one of them, whatever the API server answers about it, and for what is tried again in that time. */
const MAX_MS = 120_000;
const PATIENCE = { maxIdleMs: 30_000, webhookWaitMs: 30_000 } as const;
/** What is told of all of them together. */
const THE_POLICIES = "policies";

/** Sweeps again and again until the signal is aborted. */
export async function keepSweeping(options: Omit<OrphanSweepOptions, "told">): Promise<void> {
  const { clock, logger, signal } = options;
  const told = new ToldReasons();
  while (!signal.aborted) {
    await sweepOrphans({ ...options, told }).catch((error: unknown) => {
      if (!signal.aborted) {
        logger.warn({ reason: messageOf(error) }, "Cannot look for freezes of dead runs; trying again later");
      }
    });
    await clock.sleep(SWEEP_EVERY_MS, signal).catch(() => undefined);
  }
}

/**
 * Lifts every freeze of ours whose run is dead and that no migration will take over, and removes the policies of such runs, also
 * where the freeze is lifted already. A run is dead where its Lease can be taken, or, in a namespace where it may only be read, where it
 * is no longer renewed. What does not work for one CRD keeps no other from being looked at; foreign freezes are left alone.
 */
export async function sweepOrphans(options: OrphanSweepOptions): Promise<void> {
  const found = await findOrphans(options);
  options.told.keepOnly(new Set([...found.map(subjectOf), THE_POLICIES]));
  const orphans = found.values();
  const worker = async (): Promise<void> => {
    for (const orphan of orphans) {
      if (!options.isBusy(orphan.crdName)) {
        await sweepSafely(options, orphan);
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

/** Freezes, and the policies beside them whose freeze is gone. Who may not list policies leaves those to the next run on the CRD. */
async function findOrphans(options: OrphanSweepOptions): Promise<readonly Orphan[]> {
  const frozen = await find(options, CRDS, { orphanOf: frozenOf });
  const policies = await findGuards(options, POLICIES);
  // A user may have deleted the policy alone.
  const bindings = await findGuards(options, POLICY_BINDINGS);
  const isFirst = ({ crdName, owner }: Orphan, index: number, all: readonly Orphan[]): boolean =>
    all.findIndex((other) => other.crdName === crdName && isSameRun(other.owner, owner)) === index;
  return [...frozen, ...policies, ...bindings].filter(isFirst);
}

/** A freeze blocks its users, and a policy without one nobody but the next run: none is waited for because of the other. */
async function findGuards(options: OrphanSweepOptions, resource: Resource): Promise<readonly Orphan[]> {
  const { logger, retrier, signal, told } = options;
  const search = { labelSelector: `${MANAGED_BY_LABEL}=${MANAGED_BY}`, orphanOf: guardOf };
  const patient = { ...options, retrier: retrier.with(PATIENCE) };
  try {
    return (await unlessForbidden(() => find(patient, resource, search))) ?? [];
  } catch (error) {
    signal.throwIfAborted();
    const reason = messageOf(error);
    if (told.isNews(THE_POLICIES, reason)) logger.warn({ reason }, "Cannot look for policies of dead runs");
    return [];
  }
}

interface Search {
  readonly labelSelector?: string;
  readonly orphanOf: (object: PartialObjectMetadata) => Orphan | undefined;
}

async function find(
  { client, retrier, signal }: Found,
  resource: Resource,
  { labelSelector, orphanOf }: Search,
): Promise<readonly Orphan[]> {
  const found: Orphan[] = [];
  const selected = { limit: PAGE_SIZE, ...(labelSelector === undefined ? {} : { labelSelector }) };
  const page = (continueToken: string | undefined) =>
    retrier.run(() => client.listMetadata(resource, { ...selected, continueToken, signal }), signal);
  for await (const items of metadataPages(resource, page)) {
    found.push(...items.flatMap((object) => orphanOf(object) ?? []));
  }
  return found;
}

function frozenOf({ metadata }: PartialObjectMetadata): Orphan | undefined {
  const freezer = freezerOf(metadata);
  return freezer?.kind === "run" ? { crdName: metadata.name, owner: freezer.owner, left: "freeze" } : undefined;
}

function guardOf({ metadata }: PartialObjectMetadata): Orphan | undefined {
  const crdName = guardedCrdOf(metadata.name);
  const owner = parseOwner(metadata.annotations?.[OWNER_ANNOTATION]);
  return crdName === undefined || owner === undefined ? undefined : { crdName, owner, left: "policy" };
}

function subjectOf({ crdName, left, owner }: Orphan): string {
  return `${crdName} ${owner.identity} ${left}`;
}

/** Ends within {@link MAX_MS} and throws only where everything ends. */
async function sweepSafely(options: OrphanSweepOptions, orphan: Orphan): Promise<void> {
  const { clock, signal } = options;
  try {
    await withDeadline({ clock, ms: MAX_MS, signal, errorOf: tookTooLong }, (within) =>
      sweepOne({ ...options, retrier: options.retrier.with(PATIENCE), signal: within }, orphan),
    );
  } catch (error) {
    signal.throwIfAborted();
    tellLeft(options, orphan, error);
  }
}

function tookTooLong(): Error {
  return new Error(`it took longer than ${MAX_MS / 1_000} s`);
}

async function sweepOne(options: OrphanSweepOptions, orphan: Orphan): Promise<void> {
  const { crdName, owner } = orphan;
  const ref = runLeaseOf(crdName, owner, options.namespace);
  if (ref === undefined) {
    throw new KsvmError("ForeignFreeze", `Lease "${owner.lease}" is not one of a run that can be judged from here`);
  }
  if (ref.namespace === options.namespace) {
    await sweepHolding(options, orphan, ref);
  } else if (await isRunDead(options, ref)) {
    const client = options.client.fencedBy(() => Promise.resolve(options.assertLeading()));
    await lift({ ...options, client }, orphan);
  }
}

/** A run that begins in between waits for the Lease, so the freeze is still the dead one's, or gone. */
async function sweepHolding(options: OrphanSweepOptions, orphan: Orphan, ref: LeaseRef): Promise<void> {
  const onLeft = (lease: RunLease, error: unknown): void => {
    const facts = { crd: orphan.crdName, lease: lease.key, reason: messageOf(error) };
    options.logger.warn(facts, "Cannot release a Lease; it expires by itself");
  };
  await holdRunLease({ ...options, ...ref, onLeft }, (lease) =>
    lift({ ...options, client: options.client.fencedBy(() => lease.confirm(options.signal)) }, orphan),
  );
}

async function lift(context: CallContext & Pick<OrphanSweepOptions, "logger">, orphan: Orphan): Promise<void> {
  const { logger, signal } = context;
  const { crdName, left, owner } = orphan;
  const facts = { crd: crdName, owner };
  const removePolicy = () =>
    removePolicyGuard(context, crdName, (found) => found !== undefined && isSameRun(found, owner));
  if (left === "policy") {
    if ((await removePolicy()) === "removed") logger.info(facts, "Removed the policy that a dead run left behind");
    return;
  }
  if (await unfreeze(context, crdName, owner)) {
    logger.info(facts, "Lifted the freeze that a dead run left behind");
  }
  try {
    await removePolicy();
  } catch (error) {
    signal.throwIfAborted();
    logger.warn({ ...facts, reason: messageOf(error) }, "Cannot remove the policy that a dead run left behind");
  }
}

/** A run that lives is no news, and what stays for another reason is said once. */
function tellLeft({ logger, told }: OrphanSweepOptions, orphan: Orphan, error: unknown): void {
  const { crdName, left, owner } = orphan;
  const isAlive = error instanceof KsvmError && error.code === "AlreadyMigrating";
  const what = error instanceof ApiError ? `${error.status} ${error.reason ?? ""}` : messageOf(error);
  const isNews = !isAlive && told.isNews(subjectOf(orphan), what);
  const facts = { crd: crdName, owner, reason: messageOf(error) };
  const level = isNews ? "warn" : "debug";
  if (left === "freeze") logger[level](facts, "Left a freeze in place");
  else logger[level](facts, "Left a policy in place");
}
