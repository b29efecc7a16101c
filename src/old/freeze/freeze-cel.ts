import { MIGRATING_ANNOTATION, STORAGE_MIGRATING_CONDITION } from "../../api/names.ts";
import { type DenialFacts, denialParts, type FreezeMark } from "./freeze-denial.ts";

/*
 * The freeze rule in CEL, as `matchConditions` and a ValidatingAdmissionPolicy evaluate it on an update of a CRD. Only
 * macros and the strings library, which every supported API server has.
 *
 * The API server evaluates it on its typed objects, so `spec.versions[*].storage` is always there, while annotations,
 * status and conditions may be missing, and conditions are null until the first one is written.
 */

const HAS_FREEZE_ANNOTATION = `(has(oldObject.metadata.annotations) && "${MIGRATING_ANNOTATION}" in oldObject.metadata.annotations)`;

const HAS_MIGRATING_CONDITION =
  "(has(oldObject.status) && has(oldObject.status.conditions) && oldObject.status.conditions != null && " +
  "oldObject.status.conditions.exists(condition, " +
  `condition.type == "${STORAGE_MIGRATING_CONDITION}" && condition.status == "True"))`;

/** Whether the storage version of the old object must stay as it is; see `isFrozen`. */
export const FROZEN_EXPRESSION = `${HAS_FREEZE_ANNOTATION} || ${HAS_MIGRATING_CONDITION}`;

/**
 * Whether the set of storage versions differs. One pass over the versions of each object, and one more for each storage
 * version, of which a valid CRD has one: the cost grows linearly and stays below the API server's limit of 1,000,000
 * for an expression with as many versions as a CRD can hold.
 */
export const STORAGE_CHANGED_EXPRESSION = [
  lacksStorageVersionOf("oldObject", "object"),
  lacksStorageVersionOf("object", "oldObject"),
].join(" || ");

/** The sentence of `denialMessage`, as a string for `messageExpression`. */
export const DENIAL_MESSAGE_EXPRESSION = `${HAS_FREEZE_ANNOTATION} ? ${celMessage("annotation")} : ${celMessage("condition")}`;

function lacksStorageVersionOf(object: string, other: string): string {
  const isThere = `${other}.spec.versions.exists(there, there.storage && there.name == here.name)`;
  return `${object}.spec.versions.exists(here, here.storage && !${isThere})`;
}

function celMessage(mark: FreezeMark): string {
  const facts: Readonly<Record<keyof DenialFacts, string>> = {
    crdName: "oldObject.metadata.name",
    oldStorage: celStorageVersionsOf("oldObject"),
    newStorage: celStorageVersionsOf("object"),
  };
  // A JSON string is a CEL string too.
  return denialParts(mark)
    .map((part) => ("fact" in part ? facts[part.fact] : JSON.stringify(part.text)))
    .join(" + ");
}

function celStorageVersionsOf(object: string): string {
  return `${object}.spec.versions.filter(version, version.storage).map(version, version.name).join(", ")`;
}
