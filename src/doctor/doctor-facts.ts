import type { CustomResourceDefinition } from "../api/crd.ts";
import { SYSTEM_NAMESPACE } from "../api/migration.ts";
import { formatOwner, type Freezer, type FreezeOwner, freezerOf } from "../api/owner.ts";
import { type IdentityLease, identityLeases, type LiveLease } from "../old/apiservers/control-plane-objects.ts";
import { isOverdue } from "../old/apiservers/missing-api-server.ts";
import type { Clock } from "../clock.ts";
import { KsvmError } from "../errors.ts";
import { hasMigratingCondition } from "../old/freeze/freeze-rule.ts";
import {
  type InTreeMigration,
  inTreeMigrations,
  inTreeResourceOf,
  isInTreeUnfinished,
} from "../in-tree/in-tree-migrations.ts";
import { pruneDoubtOf } from "../in-tree/prune-doubt.ts";
import { projectedPages } from "../old/kube/list-projected.ts";
import { CRDS } from "../old/kube/resources.ts";
import { unlessForbidden } from "../old/kube/unless-forbidden.ts";
import { isRunDead } from "../old/lease/run-liveness.ts";
import { type LeaseRef, runLeaseOf } from "../old/lease/run-lease-ref.ts";
import { listedObjects } from "../plan/listed-objects.ts";
import { FREEZER_FIELDS } from "../plan/plan.ts";
import { crdProjection } from "../resources/crd-projection.ts";
import type { CallContext } from "../old/retry/call-context.ts";
import { mapInFlight } from "../old/retry/map-in-flight.ts";
import type { ClusterFacts, CrdFacts, DoctorFacts, FoundFreeze } from "./doctor-types.ts";
import { webhookFacts } from "./webhook-answer.ts";

/** What reading the facts takes. */
export interface DoctorContext extends CallContext {
  readonly clock: Clock;
}

const CRD_PAGE_SIZE = 40;
const CRDS_IN_FLIGHT = 8;
/** An API server that lives renews its identity Lease every 10 s, and up to half a second later. */
const WATCH_LEASES_MS = 15_000;
/** Of the schemas nothing is read but what tells a version that a repair brought back. */
const DOCTOR_FIELDS = crdProjection(
  {
    name: "all",
    uid: "all",
    resourceVersion: "all",
    generation: "all",
    deletionTimestamp: "all",
    ...FREEZER_FIELDS,
  },
  {
    version: {
      schema: {
        fields: {
          openAPIV3Schema: {
            fields: { description: { maxLength: 500 }, "x-kubernetes-preserve-unknown-fields": "scalar" },
          },
        },
      },
    },
    status: { conditions: "all" },
  },
);

/**
 * Reads what a diagnosis rests on, and changes nothing. A freeze is watched for as long as the Lease of its run lasts, an identity
 * Lease that is overdue for 15 s.
 * @param names full names of CRDs; where there are none, every CRD is looked at, and what does not belong to one
 * @throws {KsvmError} ResourceNotFound for a name of no CRD; RetryBudgetExceeded where the API server does not answer; {ApiError}
 *   Forbidden where CRDs may not be read.
 */
export async function readDoctorFacts(context: DoctorContext, names: readonly string[]): Promise<DoctorFacts> {
  const { client, retrier, signal } = context;
  const crds = names.length === 0 ? await everyCrd(context) : await namedCrds(context, names);
  const factsOf = async (crd: CustomResourceDefinition): Promise<CrdFacts> => ({
    crd,
    objects: await listedObjects(context, crd),
    freeze: await freezeOf(context, crd),
  });
  const facts = await mapInFlight(crds, factsOf, { most: CRDS_IN_FLIGHT, signal });
  const inTree = await retrier.run(() => unlessForbidden(() => inTreeMigrations(client, { signal })), signal);
  const now = await mapInFlight(facts, (one) => asOfNow(context, one, inTree ?? []), { most: CRDS_IN_FLIGHT, signal });
  return {
    crds: now.filter((one) => one !== undefined),
    inTree,
    ...(names.length === 0 ? { cluster: await clusterFacts(context) } : {}),
  };
}

/**
 * A CRD is read again whose freeze may not be that of a live run, or whose condition none of these migrations explains: since it was read,
 * that run may have lifted its freeze and given up its Lease, the migration that explained the condition may have ended, or a run of ksvm
 * may have proven what the one before had pruned.
 * @returns `undefined` where the CRD is gone
 */
async function asOfNow(
  context: DoctorContext,
  facts: CrdFacts,
  inTree: readonly InTreeMigration[],
): Promise<CrdFacts | undefined> {
  const { crd, freeze } = facts;
  const explains = (one: InTreeMigration): boolean =>
    inTreeResourceOf(one) === crd.metadata.name && isInTreeUnfinished(one);
  const isOfNote = hasMigratingCondition(crd) || pruneDoubtOf(crd) !== undefined;
  const isDoubtful = freeze !== undefined && freeze.isAlive !== true;
  return isDoubtful || (isOfNote && !inTree.some(explains)) ? readAgain(context, facts) : facts;
}

/**
 * The freeze of another run than the one that was judged is judged in its turn, and its CRD read once more after that.
 * @param isLast whether one more freeze of another run is not judged any more: as long as runs come and go, every look may come too late
 */
async function readAgain(context: DoctorContext, facts: CrdFacts, isLast = false): Promise<CrdFacts | undefined> {
  const { client, retrier, signal } = context;
  const { name } = facts.crd.metadata;
  const find = () => client.findFields<CustomResourceDefinition>(CRDS, { name }, DOCTOR_FIELDS, { signal });
  const crd = await retrier.run(find, signal);
  if (crd === undefined) {
    return undefined;
  }
  const freezer = freezerOf(crd.metadata);
  if (freezer?.kind !== "run") {
    return { ...facts, crd, freeze: freezer };
  }
  if (isJudged(facts.freeze, freezer.owner)) {
    return { ...facts, crd };
  }
  const freeze = isLast ? { ...freezer, isAlive: undefined } : await judged(context, name, freezer);
  const again = { ...facts, crd, freeze };
  return isLast || freeze.isAlive === true ? again : readAgain(context, again, true);
}

/** A later attempt of a run is judged by itself: its Lease may have been gone between the two. */
function isJudged(freeze: FoundFreeze | undefined, owner: FreezeOwner): boolean {
  return freeze?.kind === "run" && formatOwner(freeze.owner) === formatOwner(owner);
}

async function everyCrd({ client, signal }: CallContext): Promise<readonly CustomResourceDefinition[]> {
  const crds: CustomResourceDefinition[] = [];
  const list = { limit: CRD_PAGE_SIZE, projection: DOCTOR_FIELDS, signal };
  for await (const { items } of projectedPages(client.transport, CRDS, list)) {
    crds.push(...(items as CustomResourceDefinition[]));
  }
  return crds.toSorted((a, b) => a.metadata.name.localeCompare(b.metadata.name));
}

async function namedCrds(
  { client, retrier, signal }: CallContext,
  names: readonly string[],
): Promise<readonly CustomResourceDefinition[]> {
  const crds: CustomResourceDefinition[] = [];
  for (const name of new Set(names)) {
    const find = () => client.findFields<CustomResourceDefinition>(CRDS, { name }, DOCTOR_FIELDS, { signal });
    const crd = await retrier.run(find, signal);
    if (crd === undefined) {
      throw new KsvmError("ResourceNotFound", `Cannot diagnose "${name}": no CustomResourceDefinition has this name`);
    }
    crds.push(crd);
  }
  return crds;
}

async function freezeOf(context: DoctorContext, crd: CustomResourceDefinition): Promise<FoundFreeze | undefined> {
  const freezer = freezerOf(crd.metadata);
  return freezer?.kind === "run" ? judged(context, crd.metadata.name, freezer) : freezer;
}

type FrozenByRun = Extract<Freezer, { kind: "run" }>;

async function judged(
  context: DoctorContext,
  crdName: string,
  freezer: FrozenByRun,
): Promise<Extract<FoundFreeze, { kind: "run" }>> {
  const ref = leaseOfRun(crdName, freezer.owner);
  const isDead = ref && (await unlessForbidden(() => isRunDead(context, ref)));
  return { ...freezer, isAlive: isDead === undefined ? undefined : !isDead };
}

/** Where the Lease of a run is, of the controller's or of a command line's; `undefined` where it is in neither namespace. */
export function leaseOfRun(crdName: string, owner: FreezeOwner): LeaseRef | undefined {
  return runLeaseOf(crdName, owner, SYSTEM_NAMESPACE);
}

async function clusterFacts(context: DoctorContext): Promise<ClusterFacts> {
  return { silentLeases: await silentLeases(context), webhook: await webhookFacts(context) };
}

/** The Leases that were overdue and stood still while they were watched. One that has expired is waited for by no run. */
async function silentLeases({
  client,
  clock,
  retrier,
  signal,
}: DoctorContext): Promise<readonly LiveLease[] | undefined> {
  const look = () => retrier.run(() => identityLeases(client, clock, signal), signal);
  const before = (await look())?.filter(isSilent);
  if (before === undefined || before.length === 0) {
    return before;
  }
  await clock.sleep(WATCH_LEASES_MS, signal);
  const stood = ({ name, renewTime, uid }: LiveLease): boolean =>
    before.some((one) => one.name === name && one.uid === uid && one.renewTime === renewTime);
  return (await look())?.filter((lease) => isSilent(lease) && stood(lease));
}

function isSilent(lease: IdentityLease): boolean {
  return isOverdue(lease) && !lease.isOver;
}
