import { type CustomResourceDefinition, storageVersionOf, storedVersionsOf } from "../api/crd.ts";
import type { CrdManifest } from "./crd-manifests.ts";
import type { CheckEntry, CheckFacts, CheckVerdict } from "./check-types.ts";
import { estimateOf } from "./estimate.ts";
import { hasStaleFields, notesOf } from "./check-notes.ts";
import {
  hasVersion,
  losesConversion,
  outgoingOf,
  outgoingVersionsOf,
  removedVersionsOf,
  targetVersionOf,
} from "./version-changes.ts";
import { asWritten, leftNotes, otherCausesOf } from "./left-fields.ts";
import { unservedTextOf } from "./listed-objects.ts";
import { planCrd } from "./plan.ts";
import { notInStoredVersions, pruneDoubtOf } from "../in-tree/prune-doubt.ts";

/** The oldest version of the API of CRDs that API servers still serve, since Kubernetes 1.22 the only one. */
const CRD_API_VERSION = "apiextensions.k8s.io/v1";

/** Decides about one CRD of a file. */
export function checkCrd(manifest: CrdManifest, given: CheckFacts): CheckEntry {
  const facts = { ...given, ...asWritten(given) };
  const { dryRun, live, managedFields } = facts;
  const { notes = [], reason, steps = [], verdict } = judge(manifest, facts);
  return {
    name: manifest.name,
    source: manifest.source,
    verdict,
    reason,
    steps,
    notes: [...notes, ...leftNotes(given), ...notesOf(manifest, facts)],
    ...(dryRun.outcome === "accepted" ? {} : { apiServer: dryRun.said }),
    ...(live === undefined ? {} : { storageVersion: storageVersionOf(live), storedVersions: storedVersionsOf(live) }),
    removedVersions: live === undefined ? [] : removedVersionsOf(manifest, live).map(({ name }) => name),
    ...(hasStaleFields(managedFields) ? { managedFields } : {}),
    ...sizeOf(verdict, facts),
  };
}

function sizeOf(verdict: CheckVerdict, { objects }: CheckFacts): Pick<CheckEntry, "objects" | "estimate"> {
  if (objects?.count === undefined) {
    return {};
  }
  const isMigrated = verdict === "needs-migration" || verdict === "two-steps";
  return {
    objects: objects.count,
    ...(isMigrated ? { estimate: estimateOf(objects.count) } : {}),
  };
}

interface Judgement {
  readonly verdict: CheckVerdict;
  readonly reason: string;
  readonly steps?: readonly string[];
  readonly notes?: readonly string[];
}

function judge(manifest: CrdManifest, facts: CheckFacts): Judgement {
  if (manifest.apiVersion !== CRD_API_VERSION) {
    return {
      verdict: "refused",
      reason: `${manifest.apiVersion} is not served since Kubernetes 1.22`,
      steps: [`write the file for ${CRD_API_VERSION}: each entry of spec.versions needs a schema of its own`],
    };
  }
  return (
    lossOf(manifest, facts) ??
    migrationOf(manifest, facts) ??
    refusalOf(facts) ??
    doubtOf(manifest, facts) ?? { verdict: "applicable", reason: reasonToApply(manifest, facts) }
  );
}

/**
 * What the API shows of lost objects: they cannot be listed, or a migrator that failed pruned. Nothing else shows in
 * it.
 */
function lossOf(manifest: CrdManifest, { failedInTree = [], live, objects }: CheckFacts): Judgement | undefined {
  const { name } = manifest;
  if (live?.metadata.deletionTimestamp !== undefined) {
    return {
      verdict: "data-loss",
      reason: "the CRD is being deleted, and its objects with it, whatever is applied",
      steps: ["wait until it is gone", "apply this file: it creates a CRD without objects"],
    };
  }
  const lost = objects?.unreadableIn;
  if (lost !== undefined && !hasVersion(manifest, lost)) {
    return {
      verdict: "data-loss",
      reason: `objects are stored in ${lost}, which neither the CRD nor this file has: no client can read them`,
      steps: [
        `add ${lost} to spec.versions with the schema it had, served: false and storage: false, and apply that: the objects can be ` +
          "read again",
        `migrate every object: ksvm migrate ${name} --force`,
        "apply this file",
      ],
    };
  }
  return live === undefined ? undefined : unprovenPruneOf(manifest, live, failedInTree);
}

/**
 * A version that no object may stay stored in, and that a migrator took out of storedVersions although it has not
 * rewritten every object.
 */
function unprovenPruneOf(
  manifest: CrdManifest,
  live: CustomResourceDefinition,
  failedInTree: readonly string[],
): Judgement | undefined {
  const { name } = manifest;
  const unlisted = outgoingOf(manifest, live, notInStoredVersions(live));
  const doubt = pruneDoubtOf(live);
  if (unlisted.length === 0 || (failedInTree.length === 0 && doubt === undefined)) {
    return undefined;
  }
  const drops = `${outgoingText(manifest, unlisted)}, and Kubernetes' own`;
  if (failedInTree.length === 0) {
    return {
      verdict: "data-loss",
      reason: `${drops} migrator may have taken it out of storedVersions although objects are still stored in it: ${doubt}`,
      steps: [`rewrite every object: ksvm doctor ${name} --repair`, "apply this file"],
    };
  }
  return {
    verdict: "data-loss",
    reason:
      `${drops} migration of it failed (${failedInTree.join(", ")}): ` +
      "it takes a version out of storedVersions although objects are still stored in it",
    steps: [`rewrite every object: ksvm migrate ${name} --force`, "delete the failed migration", "apply this file"],
  };
}

function migrationOf(manifest: CrdManifest, facts: CheckFacts): Judgement | undefined {
  const { dryRun, live } = facts;
  const outgoing = live === undefined ? [] : outgoingVersionsOf(manifest, live);
  if (live === undefined || outgoing.length === 0) {
    return undefined;
  }
  const names = outgoing.join(", ");
  const others = dryRun.outcome === "refused" ? otherCausesOf(dryRun) : [];
  if (others.length > 0) {
    const reason = `the API server refuses it, and not only for ${names} in storedVersions: ${others.join("; ")}`;
    return { verdict: "refused", reason };
  }
  return outgoing.includes(storageVersionOf(live))
    ? twoStepsOf(manifest, { ...facts, live }, names)
    : {
        verdict: "needs-migration",
        reason: `${outgoingText(manifest, outgoing)}, and objects may be stored in it: storedVersions lists it`,
        steps: [`migrate the objects, which prunes storedVersions: ksvm migrate ${manifest.name}`, "apply this file"],
        notes: blockedNotes(live),
      };
}

/** Why no object may stay stored in these versions. */
function outgoingText(manifest: CrdManifest, outgoing: readonly string[]): string {
  const names = outgoing.join(", ");
  return outgoing.every((name) => hasVersion(manifest, name))
    ? `this file has no conversion webhook, so that nothing would convert ${names} to ${targetVersionOf(manifest) ?? ""}`
    : `this file drops ${names}`;
}

/** A migration writes the storage version, so that the file's own has to become it before. */
function twoStepsOf(
  manifest: CrdManifest,
  facts: CheckFacts & { readonly live: CustomResourceDefinition },
  outgoing: string,
): Judgement {
  const { intermediateDryRun, live } = facts;
  if (intermediateDryRun?.outcome === "refused") {
    const reason = `objects have to leave ${outgoing} first, and the API server refuses the file with ${outgoing} too: ${intermediateDryRun.said}`;
    return { verdict: "refused", reason };
  }
  const target = targetVersionOf(manifest) ?? "";
  const storage = storageVersionOf(live);
  return {
    verdict: "two-steps",
    reason: hasVersion(manifest, storage)
      ? `this file makes ${target} the storage version instead of ${storage} and has no conversion webhook, in one step`
      : `this file makes ${target} the storage version and drops ${storage}, the storage version until now, in one step`,
    steps: [
      `apply this file with ${keptText(manifest, live, outgoing)}`,
      `migrate the objects to ${target}, which prunes storedVersions: ksvm migrate ${manifest.name}`,
      "apply this file as it is",
    ],
    notes: intermediateDryRun?.outcome === "accepted" ? ["a dry run of the first step was accepted"] : [],
  };
}

function keptText(manifest: CrdManifest, live: CustomResourceDefinition, outgoing: string): string {
  const webhook = losesConversion(manifest, live) ? "spec.conversion as the CRD has it" : "";
  const versions =
    removedVersionsOf(manifest, live).length > 0 ? `${outgoing} kept in spec.versions, storage: false` : "";
  return [versions, webhook].filter((text) => text !== "").join(", and ");
}

function refusalOf({ dryRun }: CheckFacts): Judgement | undefined {
  if (dryRun.outcome === "accepted") {
    return undefined;
  }
  return dryRun.outcome === "refused"
    ? { verdict: "refused", reason: "the API server refuses it" }
    : {
        verdict: "unknown",
        reason: "this user may not send a dry run of it, so it is not known whether it is accepted",
      };
}

/** Objects that cannot be listed may be stored in any version that the file drops. */
function doubtOf(manifest: CrdManifest, { live, objects }: CheckFacts): Judgement | undefined {
  const removed = live === undefined ? [] : removedVersionsOf(manifest, live);
  const problem = objects?.problem ?? (live && unservedTextOf(live));
  if (removed.length === 0 || problem === undefined || objects?.unreadableIn !== undefined) {
    return undefined;
  }
  const dropped = removed.map(({ name }) => name).join(", ");
  return {
    verdict: "unknown",
    reason: `this file drops ${dropped}, and the objects cannot be listed: ${problem}`,
  };
}

function reasonToApply(manifest: CrdManifest, { live }: CheckFacts): string {
  if (live === undefined) {
    return "the cluster has no such CRD";
  }
  const removed = removedVersionsOf(manifest, live).map(({ name }) => name);
  return removed.length === 0
    ? "it keeps every version of the CRD"
    : `it drops ${removed.join(", ")}, which storedVersions does not list`;
}

function blockedNotes(live: CustomResourceDefinition): readonly string[] {
  const { action, note } = planCrd(live);
  return action === "blocked" ? [`the migration cannot start now: ${note ?? "the CRD is frozen"}`] : [];
}
