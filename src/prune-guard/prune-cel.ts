import {
  ALLOW_PRUNE_ANNOTATION,
  CRD_FIELD_MANAGER,
  MIGRATING_ANNOTATION,
  OWNER_ANNOTATION,
  STORAGE_MIGRATING_CONDITION,
} from "../api/names.ts";
import { GENERATION_MARK, VERSION_MARK } from "../api/prune-allowance.ts";

/*
 * The rule of the prune guard in CEL, as policies evaluate it on an update of the status of a CRD: which versions leave
 * `status.storedVersions`, and who removes them. Only macros and the strings library, which every supported API server has.
 */

/** The users that the in-tree controller is: with credentials of its own, which is the default of every installer, or without. */
const IN_TREE_USERS = [
  "system:serviceaccount:kube-system:storage-version-migrator-controller",
  "system:kube-controller-manager",
] as const;

const STORED =
  "(has(object.status.storedVersions) && object.status.storedVersions != null ? object.status.storedVersions : [])";
const WERE_STORED =
  "(has(oldObject.status) && has(oldObject.status.storedVersions) && oldObject.status.storedVersions != null ? oldObject.status.storedVersions : [])";

/** The versions that leave. */
export const REMOVED_EXPRESSION = `${WERE_STORED}.filter(version, !(version in ${STORED}))`;

/** What storedVersions is once those that left are back. */
export const RESTORED_EXPRESSION = `${WERE_STORED} + ${STORED}.filter(version, !(version in ${WERE_STORED}))`;

/** Whether any version leaves. */
export const REMOVES_EXPRESSION = `${REMOVED_EXPRESSION}.size() > 0`;

/**
 * Whether a run of ksvm prunes. It writes with its field manager while its own freeze is on, on an installed system and from a
 * laptop alike. Every client may use the name: the guard prevents accidents.
 */
export const BY_RUN_EXPRESSION = [
  hasAnnotation(MIGRATING_ANNOTATION),
  hasAnnotation(OWNER_ANNOTATION),
  "has(request.options.fieldManager)",
  `request.options.fieldManager == ${JSON.stringify(CRD_FIELD_MANAGER)}`,
].join(" && ");

const ALLOWANCE = `oldObject.metadata.annotations[${JSON.stringify(ALLOW_PRUNE_ANNOTATION)}].split(${JSON.stringify(GENERATION_MARK)})`;

/** Whether the annotation allows all that leaves, for this generation of the CRD. */
export const ALLOWED_EXPRESSION = [
  hasAnnotation(ALLOW_PRUNE_ANNOTATION),
  `${ALLOWANCE}.size() == 2`,
  `${ALLOWANCE}[1] == string(oldObject.metadata.generation)`,
  `${REMOVED_EXPRESSION}.all(version, version in ${ALLOWANCE}[0].split(${JSON.stringify(VERSION_MARK)}))`,
].join(" && ");

/** Whether one of the tools that the administrator lists removes them. @param users names of users */
export function byToolExpression(users: readonly string[]): string {
  return `request.userInfo.username in ${JSON.stringify(users)}`;
}

/** Whether the in-tree controller removes them. */
export const IN_TREE_EXPRESSION = `request.userInfo.username in ${JSON.stringify(IN_TREE_USERS)}`;

/**
 * Whether the update says that a migration of the in-tree controller succeeded, and that it prunes for this reason. It prunes in three
 * other cases: after a failure, and, where an earlier migration of the CRD has succeeded, when the next one begins, and when that
 * one ends after the CRD was changed, which it calls "not been updated": docs/comparison.md.
 */
export const IN_TREE_SUCCEEDED_EXPRESSION =
  "has(object.status.conditions) && object.status.conditions != null && object.status.conditions.exists(condition, " +
  `condition.type == "${STORAGE_MIGRATING_CONDITION}" && condition.status == "False" && condition.reason == "MigrationSucceeded" && ` +
  `!(has(condition.message) && condition.message.contains("have not been updated")))`;

/** The sentence for the user, for `messageExpression`. */
export const MESSAGE_EXPRESSION = [
  '"status.storedVersions of CustomResourceDefinition \\"" + oldObject.metadata.name + "\\" would lose \\""',
  'variables.removed.join(", ")',
  '"\\": objects may still be stored in it, and no API server can read them once it leaves spec.versions; rewrite them and prune with ' +
    '\\"ksvm migrate " + oldObject.metadata.name + "\\", or, if another tool has rewritten every object, allow this once with ' +
    `\\"kubectl annotate --overwrite crd " + oldObject.metadata.name + " ${ALLOW_PRUNE_ANNOTATION}="`,
  `variables.removed.join(${JSON.stringify(VERSION_MARK)}) + ${JSON.stringify(GENERATION_MARK)} + string(oldObject.metadata.generation) + "\\""`,
].join(" + ");

function hasAnnotation(name: string): string {
  return `has(oldObject.metadata.annotations) && ${JSON.stringify(name)} in oldObject.metadata.annotations`;
}
