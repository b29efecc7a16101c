import type { CrdCondition, CustomResourceDefinition } from "../api/crd.ts";
import type { ManagedFieldsEntry, PartialObjectMetadata } from "../api/meta.ts";
import { STORAGE_MIGRATING_CONDITION } from "../api/names.ts";
import { freezerOf } from "../freeze/freeze.ts";
import { type InTreeMigration, inTreeResourceOf, isInTreeUnfinished } from "../in-tree/in-tree-migrations.ts";
import type { CallOptions } from "../old/kube/call-options.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { listNamed } from "../old/kube/list-named.ts";
import { metadataPages } from "../old/kube/metadata-pages.ts";
import { CRDS } from "../old/kube/resources.ts";
import { mapInFlight } from "../old/retry/map-in-flight.ts";

/** One mark that freezes the storage version of a CRD. Field names are those of `ksvm status -o json`. */
export interface FreezeLine {
  readonly crd: string;
  /** The condition StorageMigrating of Kubernetes' own migrator; missing where it is our annotation. */
  readonly condition?: "StorageMigrating";
  /** Who froze it; missing where that is not known, or it was not this program that wrote our annotation. */
  readonly owner?: string;
  /** `namespace/name` of the Lease that says whether its owner lives. */
  readonly lease?: string;
  /** RFC 3339. */
  readonly since?: string;
  /** Of the condition: the migration of Kubernetes' own migrator that explains it. */
  readonly migration?: string;
  /** Of the condition: no migration explains it, so that only `ksvm unfreeze` ends it. */
  readonly isStuck?: true;
}

const PAGE_SIZE = 100;
const READS_IN_FLIGHT = 8;

/**
 * Reads what freezes CRDs: our annotation, and the condition of Kubernetes' own migrator. CRDs are listed by their
 * metadata; only those whose managedFields say that the condition may be there are read.
 * @param inTree the migrations of Kubernetes' own migrator; `undefined` where this user may not list them
 * @throws {ApiError}
 */
export async function readFreezeLines(
  client: ApiClient,
  inTree: readonly InTreeMigration[] | undefined,
  options: CallOptions = {},
): Promise<readonly FreezeLine[]> {
  const lines: FreezeLine[] = [];
  const candidates: PartialObjectMetadata[] = [];
  const page = (continueToken: string | undefined) =>
    client.listMetadata(CRDS, { limit: PAGE_SIZE, continueToken, ...options });
  for await (const items of metadataPages(CRDS, page)) {
    lines.push(...items.flatMap(freezeLineOf));
    candidates.push(...items.filter(mayHaveCondition));
  }
  const linesOf = async ({ metadata: { name } }: PartialObjectMetadata): Promise<readonly FreezeLine[]> => {
    // By a list, since the user may have no other right.
    const { object } = await listNamed<CustomResourceDefinition>(client.transport, CRDS, { name }, options);
    return object === undefined ? [] : conditionLineOf(object, inTree);
  };
  const ofConditions = await mapInFlight(candidates, linesOf, { most: READS_IN_FLIGHT, signal: options.signal });
  return [...lines, ...ofConditions.flat()].toSorted((a, b) => a.crd.localeCompare(b.crd));
}

function freezeLineOf({ metadata }: PartialObjectMetadata): readonly FreezeLine[] {
  const freezer = freezerOf(metadata);
  if (freezer === undefined) {
    return [];
  }
  const line = { crd: metadata.name };
  if (freezer === "other") {
    return [line];
  }
  const { identity, lease, since } = freezer;
  return [{ ...line, owner: identity, lease, since }];
}

/** Where another client emptied managedFields, they say nothing. */
function mayHaveCondition({ metadata: { managedFields = [] } }: PartialObjectMetadata): boolean {
  return managedFields.length === 0 || managedFields.some(ownsCondition);
}

function ownsCondition({ fieldsV1 }: ManagedFieldsEntry): boolean {
  const { "f:status": status } = (fieldsV1 ?? {}) as {
    "f:status"?: { "f:conditions"?: Readonly<Record<string, unknown>> };
  };
  return Object.hasOwn(status?.["f:conditions"] ?? {}, `k:{"type":"${STORAGE_MIGRATING_CONDITION}"}`);
}

function isFreezing({ type, status }: CrdCondition): boolean {
  return type === STORAGE_MIGRATING_CONDITION && status === "True";
}

/** The freeze by the condition, where it is True. */
function conditionLineOf(
  { metadata, status }: Pick<CustomResourceDefinition, "metadata" | "status">,
  inTree: readonly InTreeMigration[] | undefined,
): readonly FreezeLine[] {
  const condition = (status?.conditions ?? []).find(isFreezing);
  if (condition === undefined) {
    return [];
  }
  const { lastTransitionTime } = condition;
  const manager = metadata.managedFields?.find(ownsCondition)?.manager;
  const line = {
    crd: metadata.name,
    condition: STORAGE_MIGRATING_CONDITION,
    ...(manager === undefined ? {} : { owner: manager }),
    ...(lastTransitionTime === undefined ? {} : { since: lastTransitionTime }),
  } as const;
  return [inTree === undefined ? line : { ...line, ...explanationOf(metadata.name, inTree) }];
}

function explanationOf(crd: string, inTree: readonly InTreeMigration[]): Pick<FreezeLine, "isStuck" | "migration"> {
  const found = inTree.find((migration) => isInTreeUnfinished(migration) && inTreeResourceOf(migration) === crd);
  return found === undefined ? { isStuck: true } : { migration: found.metadata.name };
}
