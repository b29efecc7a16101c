import { type CustomResourceDefinition, storageVersionsOf } from "../api/crd.ts";
import { STORAGE_MIGRATING_CONDITION } from "../api/names.ts";
import { hasFreezeAnnotation } from "../api/owner.ts";
import { denialMessage } from "./freeze-denial.ts";

/** Whether an update of a CRD may go through. */
export type FreezeVerdict = { readonly allowed: true } | { readonly allowed: false; readonly message: string };

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
 * the migration sees the first one.
 */
export function freezeVerdict(oldCrd: CustomResourceDefinition, newCrd: CustomResourceDefinition): FreezeVerdict {
  const oldStorage = storageVersionsOf(oldCrd);
  const newStorage = storageVersionsOf(newCrd);
  if (!isFrozen(oldCrd) || isSameSet(oldStorage, newStorage)) {
    return { allowed: true };
  }
  const message = denialMessage(hasFreezeAnnotation(oldCrd) ? "annotation" : "condition", {
    crdName: oldCrd.metadata.name,
    oldStorage: oldStorage.join(", "),
    newStorage: newStorage.join(", "),
  });
  return { allowed: false, message };
}

function hasMigratingCondition(crd: CustomResourceDefinition): boolean {
  const conditions = crd.status?.conditions ?? [];
  return conditions.some(({ type, status }) => type === STORAGE_MIGRATING_CONDITION && status === "True");
}

function isSameSet(a: readonly string[], b: readonly string[]): boolean {
  return a.every((name) => b.includes(name)) && b.every((name) => a.includes(name));
}
