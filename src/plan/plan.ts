import { resourceNameOf } from "../api/migration.ts";
import {
  type CustomResourceDefinition,
  isClean,
  movesFields,
  requestVersionOf,
  servedVersionsOf,
  specKeyOf,
  storageVersionOf,
  storedVersionsOf,
} from "../api/crd.ts";
import { MIGRATING_ANNOTATION, OWNER_ANNOTATION } from "../api/names.ts";
import { freezerOf } from "../freeze/freeze.ts";
import { notInStoredVersions, pruneDoubtOf } from "../in-tree/prune-doubt.ts";
import type { Resource } from "../old/kube/resources.ts";
import { crdProjection, namedFieldsLost } from "../resources/crds.ts";
import type { ServedResource } from "../resources/migratable.ts";
import { type StoredEncoding, versionTextOf } from "../resources/storage-states.ts";

/**
 * What a migration would do to a resource.
 *
 * - `migrate`: rewrite every object, of a CRD also prune storedVersions
 * - `none`: storedVersions is the storage version alone, and nothing speaks against it; of a built-in resource its
 *   StorageState says the same
 * - `blocked`: it could not start, the note says why
 * - `unknown`: nothing tells in which version built-in objects are stored
 */
export type PlannedAction = "migrate" | "none" | "blocked" | "unknown";

/** One resource in a plan. Field names are those of `ksvm plan -o json`. */
export interface PlanEntry {
  readonly name: string;
  readonly kind: string;
  readonly type: "CustomResourceDefinition" | "built-in";
  /** Where its objects are listed; missing where no version is served. */
  readonly request?: Resource;
  /** Of a built-in resource what its storageVersionHash stands for, or the hash. */
  readonly storageVersion?: string;
  /** Of a built-in resource what its StorageState lists; missing where it has none. */
  readonly storedVersions?: readonly string[];
  readonly servedVersions: readonly string[];
  readonly action: PlannedAction;
  /** The versions that could be removed from the CRD afterwards. */
  readonly removableVersions: readonly string[];
  readonly note?: string;
  /** Of a CRD: why objects may be stored in versions that storedVersions lacks; missing where nothing speaks for it. */
  readonly pruneDoubt?: string;
  /** Of a CRD: its `uid/generation`, as `status.crd` of a migration has it. */
  readonly crd?: string;
  /** Of a CRD whose versions are converted by a webhook. */
  readonly conversion?: "Webhook";
}

/** What tells who froze a CRD, see `freezerOf`. */
export const FREEZER_FIELDS = {
  annotations: { fields: { [MIGRATING_ANNOTATION]: "all", [OWNER_ANNOTATION]: "all" } },
  managedFields: {
    items: {
      fields: {
        manager: "all",
        fieldsV1: {
          fields: {
            "f:metadata": { fields: { "f:annotations": { fields: { [`f:${MIGRATING_ANNOTATION}`]: "all" } } } },
          },
        },
      },
    },
  },
} as const;

/** What {@link planCrd} reads of a CRD. */
export const PLAN_FIELDS = crdProjection(
  { name: "all", uid: "all", generation: "all", ...FREEZER_FIELDS },
  { status: { conditions: "all" } },
);

/** Whether {@link planCrd} says more where the schemas of the CRD are known, which {@link PLAN_FIELDS} leave out. */
export function isSchemaDue(crd: CustomResourceDefinition): boolean {
  return crdActionOf(crd) === "migrate" && requestVersionOf(crd) !== storageVersionOf(crd) && !movesFields(crd);
}

/** What a migration of this CRD would do. */
export function planCrd(crd: CustomResourceDefinition): PlanEntry {
  const { name } = crd.metadata;
  const { group, names } = crd.spec;
  const storageVersion = storageVersionOf(crd);
  const version = requestVersionOf(crd);
  const action = crdActionOf(crd);
  const note = crdNoteOf(crd);
  const pruneDoubt = pruneDoubtTextOf(crd);
  return {
    name,
    kind: names.kind,
    type: "CustomResourceDefinition",
    ...(version === undefined ? {} : { request: { group, version, resource: names.plural } }),
    storageVersion,
    storedVersions: storedVersionsOf(crd),
    servedVersions: servedVersionsOf(crd),
    action,
    removableVersions:
      action === "blocked" ? [] : crd.spec.versions.flatMap(({ name: v }) => (v === storageVersion ? [] : [v])),
    ...(note === undefined ? {} : { note }),
    ...(pruneDoubt === undefined ? {} : { pruneDoubt }),
    crd: specKeyOf(crd.metadata),
    ...(movesFields(crd) ? { conversion: "Webhook" } : {}),
  };
}

/**
 * What a migration of this built-in resource would do.
 * @param stored what its StorageState says; missing where there are no StorageStates
 */
export function planBuiltIn(resource: ServedResource, stored?: StoredEncoding): PlanEntry {
  const { group, version, kind, storageVersionHash } = resource;
  const { persisted, reason, state = "unknown" } = stored ?? {};
  return {
    name: resourceNameOf(resource),
    kind,
    type: "built-in",
    request: { group, version, resource: resource.resource },
    ...(storageVersionHash === undefined ? {} : { storageVersion: versionTextOf(storageVersionHash, resource) }),
    ...(persisted === undefined ? {} : { storedVersions: persisted.map((hash) => versionTextOf(hash, resource)) }),
    servedVersions: [version],
    action: BUILT_IN_ACTIONS[state],
    removableVersions: [],
    ...(reason === undefined ? {} : { note: reason }),
  };
}

const BUILT_IN_ACTIONS = { current: "none", stale: "migrate", unknown: "unknown" } as const;

function crdActionOf(crd: CustomResourceDefinition): PlannedAction {
  if (isClean(crd) && pruneDoubtOf(crd) === undefined) {
    return "none";
  }
  const isForeign = freezerOf(crd.metadata) === "other";
  return requestVersionOf(crd) === undefined || isForeign || lackingNoteOf(crd) !== undefined ? "blocked" : "migrate";
}

/** Why no object can be written without the loss of fields, and what helps; `undefined` where it can. */
function lackingNoteOf(crd: CustomResourceDefinition): string | undefined {
  const version = requestVersionOf(crd);
  const lacked = version && namedFieldsLost(crd, version);
  const storage = storageVersionOf(crd);
  return (
    lacked &&
    `its storage version "${storage}" is not served, and "${version}" lacks ${lacked}: set served: true on "${storage}" until it is migrated`
  );
}

function crdNoteOf(crd: CustomResourceDefinition): string | undefined {
  const freezer = freezerOf(crd.metadata);
  if (freezer === "other") {
    return "frozen by another owner";
  }
  const isBlocked = crdActionOf(crd) === "blocked";
  if (freezer !== undefined && !isBlocked) {
    return `frozen by ${freezer.identity} since ${freezer.since}`;
  }
  if (requestVersionOf(crd) === undefined) {
    return "no version is served";
  }
  return isBlocked ? lackingNoteOf(crd) : undefined;
}

/**
 * Why objects may be stored in versions that storedVersions lacks, and what helps; `undefined` where nothing speaks for
 * it.
 */
export function pruneDoubtTextOf(crd: CustomResourceDefinition): string | undefined {
  const doubt = pruneDoubtOf(crd);
  return (
    doubt &&
    `objects may be stored in ${notInStoredVersions(crd).join(", ")}, which storedVersions lacks: ${doubt}; ` +
      `to rewrite them, run ksvm doctor ${crd.metadata.name} --repair`
  );
}
