import { type CrdCondition, type CustomResourceDefinition, isClean } from "../api/crd.ts";
import { objectIn } from "../api/json-fields.ts";
import type { ManagedFieldsEntry } from "../api/meta.ts";
import { IN_TREE_FIELD_MANAGER, STORAGE_MIGRATING_CONDITION } from "../api/names.ts";
import { type CrdChange, changeCrd } from "../freeze/change-crd.ts";
import { hasMigratingCondition } from "../freeze/freeze-rule.ts";
import type { Projection } from "../json/json-projection.ts";
import { isAbsent } from "../kube/absent.ts";
import { listProjected } from "../kube/list-projected.ts";
import { metadataProjection } from "../kube/metadata-projection.ts";
import { CRDS } from "../kube/resources.ts";
import type { CallContext } from "../retry/call-context.ts";

/** What the condition StorageMigrating of a CRD says. The reason is upstream's, but for one that waits, which upstream never does. */
export type Marking =
  | { readonly type: "running"; readonly migration: string }
  | { readonly type: "waiting"; readonly migration: string }
  | { readonly type: "ended"; readonly hasSucceeded: boolean };

const KEY = `k:{"type":"${STORAGE_MIGRATING_CONDITION}"}`;
const PAGE_SIZE = 100;
const MARKED_FIELDS: Projection = {
  fields: {
    metadata: metadataProjection({
      managedFields: {
        items: {
          fields: {
            manager: "all",
            subresource: "all",
            fieldsV1: { fields: { "f:status": { fields: { "f:conditions": { fields: { [KEY]: "all" } } } } } },
          },
        },
      },
    }),
    status: { fields: { conditions: "all" } },
  },
};

/**
 * Has a CRD say it, where it does not yet. No other field is written: storedVersions is pruned by the run of the engine alone.
 * @returns whether there is such a CRD
 * @throws {ApiError | TransportError | KsvmError}
 */
export async function markCrd(
  context: CallContext,
  crdName: string,
  marking: Marking,
  now: () => string,
): Promise<boolean> {
  try {
    await changeCrd(context, crdName, (crd) => changeOf(crd, marking, now()), {
      subresource: "status",
      fieldManager: IN_TREE_FIELD_MANAGER,
    });
    return true;
  } catch (error) {
    if (isAbsent(error, crdName)) {
      return false;
    }
    throw error;
  }
}

/** What it takes for a CRD to say it; `undefined` where it does, and where it never said that a migration runs which waits now. */
export function changeOf(crd: CustomResourceDefinition, marking: Marking, now: string): CrdChange | undefined {
  const all = crd.status?.conditions ?? [];
  const before = all.find(({ type }) => type === STORAGE_MIGRATING_CONDITION);
  const said = { status: marking.type === "running" ? "True" : "False", ...wordsOf(crd, marking) };
  const isSilent = before === undefined && marking.type === "waiting";
  return isSilent || isSaidBy(before, said) ? undefined : { status: { conditions: withCondition(crd, said, now) } };
}

type Said = Pick<CrdCondition, "status" | "reason" | "message">;

function isSaidBy(before: CrdCondition | undefined, said: Said): boolean {
  return before?.status === said.status && before.reason === said.reason && before.message === said.message;
}

function withCondition({ metadata: { generation }, status }: CustomResourceDefinition, said: Said, now: string) {
  const all = status?.conditions ?? [];
  const before = all.find(({ type }) => type === STORAGE_MIGRATING_CONDITION);
  const condition = {
    type: STORAGE_MIGRATING_CONDITION,
    ...said,
    lastTransitionTime: before?.status === said.status ? (before.lastTransitionTime ?? now) : now,
    ...(generation === undefined ? {} : { observedGeneration: generation }),
  };
  return [...all.filter(({ type }) => type !== STORAGE_MIGRATING_CONDITION), condition];
}

function wordsOf(
  crd: CustomResourceDefinition,
  marking: Marking,
): { readonly reason: string; readonly message: string } {
  if (marking.type === "running") {
    return { reason: "MigrationRunning", message: `Migration ${marking.migration} is running` };
  }
  if (marking.type === "waiting") {
    return { reason: "MigrationWaiting", message: `Migration ${marking.migration} waits, without a freeze` };
  }
  if (!marking.hasSucceeded) {
    return { reason: "MigrationFailed", message: "The migration has failed" };
  }
  const pruned = isClean(crd)
    ? "and the stored versions have been updated"
    : "but the stored versions have not been updated due to a generation mismatch";
  return { reason: "MigrationSucceeded", message: `The migration has succeeded ${pruned}` };
}

/**
 * The CRDs whose condition this program set to True: a process that was killed may have left it so.
 * @throws {ApiError | TransportError}
 */
export async function markedCrds({ client, retrier, signal }: CallContext): Promise<readonly string[]> {
  const list = { limit: PAGE_SIZE, projection: MARKED_FIELDS, signal };
  const { items } = await retrier.run(() => listProjected(client.transport, CRDS, list), signal);
  return items.flatMap((item) => {
    const crd = item as CustomResourceDefinition;
    const isOurs = (crd.metadata.managedFields ?? []).some(ownsCondition);
    return isOurs && hasMigratingCondition(crd) ? [crd.metadata.name] : [];
  });
}

function ownsCondition({ fieldsV1, manager }: ManagedFieldsEntry): boolean {
  const conditions = objectIn(objectIn(fieldsV1?.["f:status"])?.["f:conditions"]);
  return manager === IN_TREE_FIELD_MANAGER && conditions !== undefined && Object.hasOwn(conditions, KEY);
}
