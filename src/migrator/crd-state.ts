import { objectIn } from "../api/json-fields.ts";
import { KsvmError } from "../errors.ts";
import { CRD_FIELD_MANAGER } from "../freeze/rule.ts";
import { type Crd, hasConversionWebhook, storageVersion } from "../kube/objects.ts";

/** Why nothing can be done with a CRD as it is, and the command that helps. */
export interface CrdProblem {
  readonly reason: string;
  readonly help: string;
}

/** The finalizer of every CRD: the API server deletes the objects before it goes. */
const OBJECTS_FIRST = "customresourcecleanup.apiextensions.k8s.io";

/**
 * The first state of a CRD that stops everything: no run can freeze it, write its objects or prune it, or each write
 * would lose fields. `undefined` where it has none. It needs the schemas of the CRD.
 */
export function crdProblem(crd: Crd): CrdProblem | undefined {
  return (
    deletion(crd) ??
    storedWithoutSpec(crd) ??
    conflictOfNames(crd) ??
    notServed(crd) ??
    // The API server calls such a schema not structural, too.
    preservesUnknownFields(crd) ??
    notStructural(crd)
  );
}

/** @throws {KsvmError} ResourceNotMigratable where there is a problem */
export function assertMigratable(crd: Crd, problem: CrdProblem | undefined): void {
  if (problem === undefined) return;
  const text = `${problem.reason}; ${problem.help}`;
  throw new KsvmError("ResourceNotMigratable", `Cannot migrate "${crd.metadata.name}": ${text}`);
}

/** The finalizer may write objects in an earlier version for minutes. */
function deletion(crd: Crd): CrdProblem | undefined {
  const { deletionTimestamp, finalizers = [], name } = crd.metadata;
  if (deletionTimestamp === undefined) return undefined;
  const why = message(crd, "Terminating", "True");
  const reason = `it is being deleted since ${deletionTimestamp}${why === undefined ? "" : `: ${why}`}`;
  const others = finalizers.filter((one) => one !== OBJECTS_FIRST);
  if (finalizers.length > 0 && others.length === finalizers.length) {
    const patch = `kubectl patch crd ${name} --type=merge -p '{"metadata":{"finalizers":null}}'`;
    return { reason: `${reason}; it waits for ${others.join(", ")}`, help: `if what set that is gone: ${patch}` };
  }
  const columns = "NAMESPACE:.metadata.namespace,NAME:.metadata.name,FINALIZERS:.metadata.finalizers";
  return { reason, help: `see which objects keep it: kubectl get ${name} -A -o custom-columns=${columns}` };
}

/** The versions that storedVersions lists and the CRD lacks. */
export function lostVersions({ spec, status }: Crd): readonly string[] {
  return (status?.storedVersions ?? []).filter((stored) => spec.versions.every(({ name }) => name !== stored));
}

/** The API server refuses every write of such a CRD. */
function storedWithoutSpec(crd: Crd): CrdProblem | undefined {
  const lost = lostVersions(crd);
  if (lost.length === 0) return undefined;
  const reason = `status.storedVersions lists ${lost.join(", ")}, which spec.versions lacks`;
  return { reason, help: `ksvm doctor ${crd.metadata.name} --repair` };
}

function conflictOfNames(crd: Crd): CrdProblem | undefined {
  const why = message(crd, "NamesAccepted", "False");
  if (why === undefined) return undefined;
  const list = "kubectl get crds -o custom-columns=NAME:.metadata.name,NAMES:.status.acceptedNames";
  const { group } = crd.spec;
  return {
    reason: `its names are not accepted: ${why}`,
    help: `find the CRD of group ${group} that has the name, and delete or rename one of the two: ${list}`,
  };
}

/** No version is served, or each write would go through a schema that lacks fields. */
export function notServed(crd: Crd): CrdProblem | undefined {
  const { versions } = crd.spec;
  const storage = storageVersion(crd);
  const stored = versions.find((version) => version.name === storage);
  const requested = versions.find(({ served }) => served);
  if (stored?.served === true) return undefined;
  const path = `/spec/versions/${versions.findIndex((version) => version === stored)}/served`;
  const patch = JSON.stringify([{ op: "replace", path, value: true }]);
  const serve = `kubectl patch crd ${crd.metadata.name} --type=json -p '${patch}'`;
  if (requested === undefined) return { reason: "it serves no version", help: serve };
  // A webhook keeps the fields. Where none converts, the API server drops what the schema of the request lacks.
  if (hasConversionWebhook(crd) || JSON.stringify(requested.schema) === JSON.stringify(stored?.schema)) {
    return undefined;
  }
  const reason = `its storage version ${storage} is not served, and ${requested.name} has another schema`;
  return {
    reason: `${reason}, so that each write could drop fields`,
    help: `serve ${storage} until it is migrated: ${serve}`,
  };
}

/** Left of `apiextensions.k8s.io/v1beta1`. */
function preservesUnknownFields({ spec }: Crd): CrdProblem | undefined {
  if (spec.preserveUnknownFields !== true) return undefined;
  return {
    reason:
      "spec.preserveUnknownFields is true: objects may have fields that no schema describes, which the API server " +
      "drops once it is false",
    help:
      "set it to false in the file of the CRD, have its schemas describe the fields that ksvm check -f FILE names " +
      "then, and apply the file",
  };
}

function notStructural(crd: Crd): CrdProblem | undefined {
  const why = message(crd, "NonStructuralSchema", "True");
  if (why === undefined) return undefined;
  const { name } = crd.metadata;
  return { reason: `its schema is not structural: ${why}`, help: `correct what that names: kubectl edit crd ${name}` };
}

/** What a condition says while it has a status; `undefined` where it has not. */
function message({ status }: Crd, type: string, value: "True" | "False"): string | undefined {
  const condition = (status?.conditions ?? []).find((one) => one.type === type && one.status === value);
  return condition && (condition.message || condition.reason || type);
}

/**
 * The client that answers for `status.storedVersions`: ksvm, unless another one has changed it since, which takes the
 * field away from ksvm. `undefined` where no client does: the API server's own additions leave no entry.
 */
export function storedVersionsOwner({ metadata }: Pick<Crd, "metadata">): string | undefined {
  const owners = (metadata.managedFields ?? []).filter(({ fieldsV1, subresource }) =>
    Object.hasOwn(subresource === "status" ? (objectIn(fieldsV1?.["f:status"]) ?? {}) : {}, "f:storedVersions"),
  );
  const names = owners
    .toSorted((a, b) => (b.time ?? "").localeCompare(a.time ?? ""))
    .map(({ manager = "unknown" }) => manager);
  return names.find((name) => name === CRD_FIELD_MANAGER) ?? names[0];
}

/** The versions of the CRD that storedVersions lacks. */
export function unlistedVersions({ spec, status }: Crd): readonly string[] {
  return spec.versions.flatMap(({ name }) => (status?.storedVersions?.includes(name) === true ? [] : [name]));
}

/**
 * Why objects may be stored in a version that storedVersions lacks; `undefined` where nothing speaks for it. Kubernetes'
 * own migrator prunes where it fails, too, and where its next migration begins, which leaves storedVersions without an
 * owner: docs/comparison.md. Only its success on an unchanged CRD has rewritten every object. The next prune of ksvm
 * ends the doubt.
 */
export function pruneDoubt(crd: Crd): string | undefined {
  const unlisted = unlistedVersions(crd).join(", ");
  // The API server keeps null where conditions were cleared.
  const condition = (crd.status?.conditions ?? []).find(({ type }) => type === "StorageMigrating");
  if (unlisted === "" || condition === undefined || storedVersionsOwner(crd) === CRD_FIELD_MANAGER) return undefined;
  const isUnchanged = condition.message?.includes("the stored versions have not been updated") !== true;
  if (condition.status === "False" && condition.reason === "MigrationSucceeded" && isUnchanged) return undefined;
  const why = "its condition StorageMigrating says that Kubernetes' own migrator did not succeed on an unchanged CRD";
  return `objects may be stored in ${unlisted}, which storedVersions lacks: ${why}`;
}
