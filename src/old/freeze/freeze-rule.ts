import { type CustomResourceDefinition, storageVersionsOf } from "../../api/crd.ts";
import { STORAGE_MIGRATING_CONDITION } from "../../api/names.ts";
import { type FreezeOwner, freezeOwnerOf, hasFreezeAnnotation } from "../../api/owner.ts";
import { denialMessage, type FreezeMark } from "./freeze-denial.ts";

/** Whether an update of a CRD may go through. */
export type FreezeVerdict = { readonly allowed: true } | FreezeDenial;

/** A storage change of a frozen CRD. */
export interface FreezeDenial {
  readonly allowed: false;
  /** For the user. */
  readonly message: string;
  readonly mark: FreezeMark;
  /** Who holds the freeze, as far as it can be told. */
  readonly owner: FreezeOwner | undefined;
  /** Several are separated by commas. */
  readonly oldStorage: string;
  readonly newStorage: string;
}

/** How far the migration of a CRD is, in a few words for people; `undefined` where it is not known. */
export type ProgressOf = (crdName: string) => string | undefined;

/**
 * Whether the storage version of a CRD must stay as it is: the migrating annotation is there, whatever its value, or
 * the API server's own migrator says that it is at work.
 *
 * KEP-2855, "Proposed Admission Webhook"; for the condition
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1/types.go
 */
export function isFrozen(crd: CustomResourceDefinition): boolean {
  return hasFreezeAnnotation(crd) || hasMigratingCondition(crd);
}

/**
 * The verdict on an update of a CRD: denied exactly when the old object is frozen and the set of storage versions
 * differs. The old object decides, so that lifting the freeze and changing the storage version takes two updates, and
 * the migration sees the first one. `progressOf` is asked for the words of a denial only.
 */
export function freezeVerdict(
  oldCrd: CustomResourceDefinition,
  newCrd: CustomResourceDefinition,
  progressOf?: ProgressOf,
): FreezeVerdict {
  const before = storageVersionsOf(oldCrd);
  const after = storageVersionsOf(newCrd);
  if (!isFrozen(oldCrd) || isSameSet(before, after)) {
    return { allowed: true };
  }
  const mark = hasFreezeAnnotation(oldCrd) ? "annotation" : "condition";
  // Beside the condition it is what a run left behind that was killed.
  const owner = mark === "annotation" ? freezeOwnerOf(oldCrd) : undefined;
  const crdName = oldCrd.metadata.name;
  const facts = { crdName, oldStorage: before.join(", "), newStorage: after.join(", ") };
  const message = denialMessage(mark, facts, { owner, progress: ask(progressOf, crdName) });
  return { allowed: false, message, mark, owner, oldStorage: facts.oldStorage, newStorage: facts.newStorage };
}

/** A denial is worth more than the words that it could carry. */
function ask(progressOf: ProgressOf | undefined, crdName: string): string | undefined {
  try {
    return progressOf?.(crdName);
  } catch {
    return undefined;
  }
}

/** Whether Kubernetes' own migrator says that it is at work. */
export function hasMigratingCondition(crd: CustomResourceDefinition): boolean {
  const conditions = crd.status?.conditions ?? [];
  return conditions.some(({ type, status }) => type === STORAGE_MIGRATING_CONDITION && status === "True");
}

function isSameSet(a: readonly string[], b: readonly string[]): boolean {
  return a.every((name) => b.includes(name)) && b.every((name) => a.includes(name));
}
