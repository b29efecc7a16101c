import type { CustomResourceDefinition } from "../api/crd.ts";
import { objectIn } from "../api/json-fields.ts";
import type { CheckFacts, DryRun, Refusal } from "./check-types.ts";

/**
 * Both wordings of the same refusal: the first is that of Kubernetes 1.36 and newer, the second that of older ones.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation/validation.go
 */
const MISSING_FROM_VERSIONS = /(?:missing from|must appear in) spec\.versions/;

/** What the API server refuses besides versions that storedVersions lists. */
export function otherCausesOf({ causes, said }: Refusal): readonly string[] {
  return (causes.length === 0 ? [said] : causes).filter((cause) => !MISSING_FROM_VERSIONS.test(cause));
}

/**
 * The client that last applied the CRD server-side: it takes away what it owns and the file leaves out, and leaves what
 * others own. Its entry has spec.group, as every file has it; spec.versions may have become another client's by a
 * change of the storage version.
 *
 * @returns its field manager; `undefined` where no client applies the CRD server-side
 */
export function applierOf({ metadata: { managedFields = [] } }: CustomResourceDefinition): string | undefined {
  const appliers = managedFields.filter(
    ({ fieldsV1, operation, subresource }) =>
      operation === "Apply" &&
      subresource === undefined &&
      Object.hasOwn(objectIn(fieldsV1?.["f:spec"]) ?? {}, "f:group"),
  );
  return appliers.reduce((a, b) => ((b.time ?? "") > (a.time ?? "") ? b : a), appliers[0] ?? {}).manager;
}

type Written = Pick<CheckFacts, "dryRun" | "intermediateDryRun" | "isReplaced" | "live">;

/**
 * What the API server says to a file as it comes to be written. An apply leaves in the CRD what other clients own and
 * the file leaves out, such as a webhook beside `strategy: None`, and the API server may refuse what becomes of both
 * together. Where it takes the file in place of all that spec has, it takes it from a client that takes away what it
 * wrote itself: who wrote it is known of a client that applies server-side alone, since the dry run has its name. Of
 * others, such as a client-side `kubectl apply` and Helm, it is in annotations and Secrets of their own, and
 * managedFields show the last changes only.
 */
export function asWritten(facts: Written): Pick<CheckFacts, "dryRun" | "intermediateDryRun"> {
  const { dryRun, intermediateDryRun, isReplaced = false, live } = facts;
  const isLeft = !isReplaced && live !== undefined && applierOf(live) !== undefined;
  const said = (one: DryRun): DryRun => (isLeft ? one : (replacementIn(one) ?? one));
  return { dryRun: said(dryRun), intermediateDryRun: intermediateDryRun && said(intermediateDryRun) };
}

/**
 * What it says to the file in place of all that spec has, where that is no other refusal than that of storedVersions.
 */
function replacementIn(dryRun: DryRun): DryRun | undefined {
  const replaced = dryRun.outcome === "refused" ? dryRun.replaced : undefined;
  const isTaken =
    replaced?.outcome === "accepted" || (replaced?.outcome === "refused" && otherCausesOf(replaced).length === 0);
  return isTaken ? replaced : undefined;
}

/** That it depends on the client whether the API server takes a file. */
export function leftNotes({ dryRun, isReplaced = false, live }: Written): readonly string[] {
  if (dryRun.outcome !== "refused" || replacementIn(dryRun) === undefined || isReplaced) {
    return [];
  }
  const applier = live && applierOf(live);
  const remedy = "ksvm migrate -f FILE --apply puts the file in place of all that spec has";
  return [
    applier === undefined
      ? `a client that leaves in the CRD what this file leaves out is refused (${otherCausesOf(dryRun).join("; ")}): kubectl apply and ` +
        `Helm take away what they wrote themselves; ${remedy}`
      : `only an apply by ${applier} is refused, which leaves in the CRD what other clients own: ${remedy}`,
  ];
}
