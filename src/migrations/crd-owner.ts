import type { ObjectMeta, OwnerReference, PartialObjectMetadata } from "../api/meta.ts";
import { resourceNameOf } from "../api/migration.ts";
import type { Clock } from "../clock.ts";
import { KsvmError } from "../errors.ts";
import { isNotFound } from "../kube/absent.ts";
import { type ApiClient, isConflict } from "../kube/client.ts";
import { failureKindOf } from "../kube/failure.ts";
import { metadataPages } from "../kube/metadata-pages.ts";
import { apiVersionOf, CRDS, MERGE_PATCH, MIGRATIONS } from "../kube/resources.ts";
import { LoopPace } from "../retry/loop-pace.ts";
import type { Retrier } from "../retry/retrier.ts";

/** The migrator's ClusterRole. Earlier versions of this program made it the owner of the migrations that they created. */
const MIGRATOR_CLUSTER_ROLE = "system:storage-migrator";

/** What {@link ownMigrationsByCrd} needs. */
export interface CrdOwnerContext {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly retrier: Retrier;
  readonly signal: AbortSignal;
}

const PAGE_SIZE = 500;
/** The controller writes a migration that runs every two seconds, each time between a read and a write at most. */
const MAX_TRIES = 20;
const MIN_INTERVAL_MS = 50;
const MAX_INTERVAL_MS = 1_000;
/** What is wrong with one migration alone, as a webhook that fails for it, keeps the others waiting no longer than this. */
const PATIENCE = { maxIdleMs: 60_000, webhookWaitMs: 60_000 } as const;

/**
 * The owner of a migration: the CRD of its kind, with which it goes in any case. The garbage collector deletes what has no
 * owner left, a migration that runs, too, so that the owner must be nothing that a user may replace.
 *
 * https://kubernetes.io/docs/concepts/architecture/garbage-collection/#owners-dependents
 * @param crd the metadata of the CRD of StorageVersionMigrations
 */
export function crdOwnerOf({ name, uid }: Pick<ObjectMeta, "name" | "uid">): OwnerReference {
  return { apiVersion: apiVersionOf(CRDS.group, CRDS.version), kind: "CustomResourceDefinition", name, uid };
}

/** The owner references that a migration ought to have; `undefined` where it has them. Those of other clients stay. */
function ownersInPlaceOf(
  owners: readonly OwnerReference[],
  owner: OwnerReference,
): readonly OwnerReference[] | undefined {
  const others = owners.filter((one) => !isMigratorRole(one));
  if (others.length === owners.length) {
    return undefined;
  }
  return [...others.filter(({ uid }) => uid !== owner.uid), owner];
}

/** By its name: a role that was replaced has another uid. */
function isMigratorRole({ kind, name }: OwnerReference): boolean {
  return kind === "ClusterRole" && name === MIGRATOR_CLUSTER_ROLE;
}

/** What {@link ownMigrationsByCrd} did. */
export interface OwnerChanges {
  /** How many migrations have another owner now. */
  readonly changed: number;
  /** The names of those that cannot be changed, as where they do not fit the schema of the CRD. */
  readonly refused: readonly string[];
}

/**
 * Gives the migrations that the ClusterRole of an earlier installation owns to the CRD, finished ones too.
 * @throws {ApiError | TransportError}; {KsvmError} Conflict where other clients write one all the time.
 */
export async function ownMigrationsByCrd(context: CrdOwnerContext): Promise<OwnerChanges> {
  const { client, retrier, signal } = context;
  const ref = { name: resourceNameOf(MIGRATIONS) };
  const crd = await retrier.run(() => client.get<PartialObjectMetadata>(CRDS, ref, { signal }), signal);
  const owner = crdOwnerOf(crd.metadata);
  const refused: string[] = [];
  let changed = 0;
  const page = (continueToken: string | undefined) =>
    retrier.run(() => client.listMetadata(MIGRATIONS, { limit: PAGE_SIZE, continueToken, signal }), signal);
  for await (const items of metadataPages(MIGRATIONS, page)) {
    for (const { metadata } of items) {
      const answer = await ownOne(context, metadata, owner);
      changed += answer === "changed" ? 1 : 0;
      refused.push(...(answer === "refused" ? [metadata.name] : []));
    }
  }
  return { changed, refused };
}

async function ownOne(
  context: CrdOwnerContext,
  listed: ObjectMeta,
  owner: OwnerReference,
): Promise<"changed" | "refused" | "as it was"> {
  const { client, clock, retrier, signal } = context;
  const { name, uid } = listed;
  const pace = new LoopPace({ clock, minMs: MIN_INTERVAL_MS, maxMs: MAX_INTERVAL_MS });
  let metadata: ObjectMeta | undefined = listed;
  for (let tries = 1; tries <= MAX_TRIES && metadata?.uid === uid; tries++) {
    const ownerReferences = ownersInPlaceOf(metadata.ownerReferences ?? [], owner);
    if (ownerReferences === undefined) {
      return "as it was";
    }
    const answer = await write(context, metadata, ownerReferences);
    if (answer !== "conflict") {
      return answer;
    }
    await pace.turn(signal);
    metadata = (await retrier.run(() => client.findMetadata(MIGRATIONS, { name }, { signal }), signal))?.metadata;
  }
  if (metadata?.uid === uid) {
    const text = `Cannot change the owner of migrations/${name}: other clients write it all the time`;
    throw new KsvmError("Conflict", text);
  }
  return "as it was";
}

async function write(
  { client, retrier, signal }: CrdOwnerContext,
  { name, uid, resourceVersion }: ObjectMeta,
  ownerReferences: readonly OwnerReference[],
): Promise<"changed" | "refused" | "conflict"> {
  const patch = { type: MERGE_PATCH, body: { metadata: { uid, resourceVersion, ownerReferences } } };
  try {
    await retrier.with(PATIENCE).run(() => client.patch(MIGRATIONS, { name }, patch, { signal }), signal);
    return "changed";
  } catch (error) {
    // If it was deleted in between, the next read shows that.
    if (isConflict(error) || isNotFound(error)) {
      return "conflict";
    }
    const isSpent = error instanceof KsvmError && error.code === "RetryBudgetExceeded";
    if (isSpent || failureKindOf(error) === "rejected") {
      return "refused";
    }
    throw error;
  }
}
