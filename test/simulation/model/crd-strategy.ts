import { type InvalidField, invalid } from "./answers.ts";
import { type Fields, isSame, type ModelObject } from "./model-object.ts";
import type { CrdNames, ServedKind } from "./served-kinds.ts";
import { timeText } from "./server-context.ts";

interface Version extends Fields {
  readonly name: string;
  readonly storage: boolean;
}

interface CrdSpec extends Fields {
  readonly group: string;
  readonly names: CrdNames;
  readonly versions: readonly Version[];
  readonly conversion?: Fields;
}

/** `status` of a CRD. */
export interface CrdStatus extends Fields {
  readonly storedVersions?: readonly string[];
  readonly conditions?: readonly CrdCondition[] | null;
  readonly acceptedNames?: unknown;
}

/** One of its conditions. */
export interface CrdCondition {
  readonly type: string;
  readonly status: string;
  readonly lastTransitionTime?: string;
  readonly reason?: string;
  readonly message?: string;
}

/** The status with a condition in the place of the one that it has of this type. */
export function withCondition(status: CrdStatus, condition: CrdCondition): CrdStatus {
  const conditions = status.conditions ?? [];
  const at = conditions.findIndex(({ type }) => type === condition.type);
  return { ...status, conditions: at === -1 ? [...conditions, condition] : conditions.with(at, condition) };
}

/**
 * A CRD as its defaults make it.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1/defaults.go
 */
export function crdDefaulted(crd: ModelObject): ModelObject {
  const { conversion, names } = crd["spec"] as CrdSpec;
  const { listKind = `${names.kind}List`, singular = names.kind.toLowerCase() } = names as Partial<CrdNames>;
  const isWhole = conversion !== undefined && names.singular === singular && names.listKind === listKind;
  const spec = { ...(crd["spec"] as CrdSpec), names: { ...names, listKind, singular }, conversion: conversion ?? NONE };
  const status = crd["status"] as CrdStatus | undefined;
  const whole = isWhole ? crd : { ...crd, spec };
  if (status === undefined) return whole;
  const conditions = status.conditions?.map(withoutEmptyTexts);
  const isSaid = conditions?.every((condition, at) => condition === status.conditions?.[at]) ?? true;
  const said = isSaid ? whole : { ...whole, status: { ...status, conditions } };
  return (status.storedVersions ?? []).length === 0 ? withStoredVersion(said) : said;
}

const NONE = { strategy: "None" };

function withoutEmptyTexts(condition: CrdCondition): CrdCondition {
  const { message, reason, ...rest } = condition;
  if (message !== "" && reason !== "") return condition;
  return { ...rest, ...(reason ? { reason } : {}), ...(message ? { message } : {}) };
}

/**
 * The storage version is added to `status.storedVersions` in the same write that makes it the storage version.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition/strategy.go
 */
function withStoredVersion(crd: ModelObject): ModelObject {
  const spec = crd["spec"] as CrdSpec;
  const status = (crd["status"] ?? EMPTY_STATUS) as CrdStatus;
  const storage = spec.versions.find((version) => version.storage)?.name;
  const { storedVersions = [] } = status;
  if (storage === undefined || storedVersions.includes(storage)) return crd;
  return { ...crd, status: { ...status, storedVersions: [...storedVersions, storage] } };
}

/** What the API server shows of a CRD that no controller has looked at. */
const EMPTY_STATUS = { acceptedNames: { kind: "", plural: "" }, conditions: null };

/**
 * What of a CRD's versions is wrong; its schemas and names are not looked at.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation/validation.go
 * @throws {Refusal} 422
 */
function assertCrd(crd: ModelObject): void {
  const { group, names, versions } = crd["spec"] as CrdSpec;
  const { storedVersions = [] } = (crd["status"] ?? {}) as CrdStatus;
  const causes: InvalidField[] = [];
  const name = crd.metadata.name ?? "";
  if (name !== `${names.plural}.${group}`) {
    causes.push({
      field: "metadata.name",
      body: `Invalid value: ${JSON.stringify(name)}: must be spec.names.plural+"."+spec.group`,
    });
  }
  const known = new Set(versions.map((version) => version.name));
  if (known.size !== versions.length) {
    causes.push({
      field: "spec.versions",
      body: `Invalid value: ${JSON.stringify(versions)}: must contain unique version names`,
    });
  }
  if (versions.filter(({ storage }) => storage).length !== 1) {
    const body = `Invalid value: ${JSON.stringify(versions)}: must have exactly one version marked as storage version`;
    causes.push({ field: "spec.versions", body });
  }
  if (storedVersions.length === 0) {
    causes.push({ field: "status.storedVersions", body: "Invalid value: null: must have at least one stored version" });
  }
  for (const [at, stored] of storedVersions.entries()) {
    if (known.has(stored)) continue;
    const why =
      `missing from spec.versions; ${stored} was previously a storage version, and must remain in spec.versions until a ` +
      `storage migration ensures no data remains persisted in ${stored} and removes ${stored} from status.storedVersions`;
    causes.push({ field: `status.storedVersions[${at}]`, body: `Invalid value: ${JSON.stringify(stored)}: ${why}` });
  }
  if (causes.length > 0)
    throw invalid({ group: "apiextensions.k8s.io", kind: "CustomResourceDefinition" }, name, causes);
}

/** What the strategy of a CRD makes of it. @throws {Refusal} 422 */
export function crdPrepared(before: ModelObject | undefined, after: ModelObject): ModelObject {
  const crd = withStoredVersion(after);
  const isChecked = before === undefined || !isSame(before["spec"], crd["spec"]) || before["status"] !== crd["status"];
  if (isChecked) assertCrd(crd);
  return crd;
}

/** Whether a resource is that of the CRDs. */
export function isCrdKind({ group, resource }: ServedKind): boolean {
  return group === "apiextensions.k8s.io" && resource === "customresourcedefinitions";
}

/** https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1/types.go */
export const CRD_FINALIZER = "customresourcecleanup.apiextensions.k8s.io";

/** A CRD that is marked for deletion. */
export function withTerminating(crd: ModelObject, now: number): ModelObject {
  const condition = {
    type: "Terminating",
    status: "True",
    lastTransitionTime: timeText(now),
    reason: "InstanceDeletionPending",
    message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
  };
  return { ...crd, status: withCondition((crd["status"] ?? {}) as CrdStatus, condition) };
}
