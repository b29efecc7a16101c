import { isDeepStrictEqual } from "node:util";
import { droppedFields, schemaOf } from "../api/pruned-fields.ts";
import { ApiServerMissing, silentLeases } from "../apiservers/find.ts";
import { KsvmError } from "../errors.ts";
import { freezerOf, isHeld } from "../freeze/freeze.ts";
import { MIGRATING } from "../freeze/rule.ts";
import type { Client } from "../kube/client.ts";
import { unlessForbidden } from "../kube/errors.ts";
import { type Crd, CRDS, hasConversionWebhook, isClean, METADATA_LIST, storageVersion } from "../kube/objects.ts";
import { AT_ONCE, eachOf } from "../migrator/migrate-crd.ts";
import { crdProblem, lostVersions, pruneDoubt, unlistedVersions } from "../migrator/crd-state.ts";
import { everyItem, fieldVersionsText, findCrd, type FoundObjects, lookAtObjects, objectsOf } from "./inventory.ts";
import { isRestored } from "./repair.ts";

/** What can be wrong: docs/doctor.md says what each means. */
export type FindingKind =
  | "blocked-crd"
  | "unreadable-objects"
  | "unproven-prune"
  | "unfinished-repair"
  | "unlistable-objects"
  | "managed-fields"
  | "stale-stored-versions"
  | "stuck-freeze"
  | "foreign-freeze"
  | "silent-api-server"
  | "not-looked-at";

/** One thing that is wrong. Field names are those of `ksvm doctor -o json`. */
export interface Finding {
  readonly finding: FindingKind;
  /** How bad it is: `data` is unreadable or would be lost, `action` needs one, `unknown` is not known. */
  readonly severity: "data" | "action" | "unknown";
  /** The CRD, or another object as `resource/name`. */
  readonly object: string;
  /** The versions that it is about. */
  readonly versions?: readonly string[];
  /** How many objects it is about; `unknown` where the API server does not show them. */
  readonly objects?: number | "unknown";
  /** As one sentence. */
  readonly meaning: string;
  /** The command that helps, or what else to do. */
  readonly help: string;
}

/**
 * Looks at CRDs, and where none is named, at every CRD and at the API servers. It watches a freeze for as long as the
 * Lease of its run lasts, and an overdue identity Lease for 15 s.
 *
 * @throws {KsvmError} ResourceNotFound for a name of no CRD; {ApiError}
 */
export async function examine(
  client: Client,
  given: readonly string[],
  signal: AbortSignal,
): Promise<{ readonly items: readonly Finding[]; readonly lookedAt: number }> {
  const names = new Set(given);
  if (given.length === 0)
    for await (const { metadata } of everyItem(client, CRDS, signal, METADATA_LIST)) names.add(metadata.name);
  const found = await eachOf([...names].toSorted(), AT_ONCE, async (name) => {
    const findings = await examineCrd(client, name, signal);
    if (findings !== undefined || given.length === 0) return findings ?? [];
    throw new KsvmError("ResourceNotFound", `Cannot diagnose "${name}": no CustomResourceDefinition has this name`);
  });
  const others = given.length > 0 ? [] : await silentApiServers(client, signal);
  return { items: [...found.flat(), ...others], lookedAt: names.size };
}

/** @returns `undefined` where there is no such CRD */
async function examineCrd(client: Client, name: string, signal: AbortSignal): Promise<readonly Finding[] | undefined> {
  const crd = await findCrd(client, name, signal);
  if (crd === undefined) return undefined;
  const freezer = freezerOf(crd.metadata);
  const run = freezer === "other" ? undefined : freezer;
  const isRunAlive = run && (await unlessForbidden(isHeld(client, run, signal)));
  if (isRunAlive === false) {
    // A run that ended while it was watched has lifted its freeze, and a next one may have begun.
    const now = await findCrd(client, name, signal);
    if (now === undefined || !isDeepStrictEqual(freezerOf(now.metadata), run)) return examineCrd(client, name, signal);
  }
  const { preserveUnknownFields = false, versions } = crd.spec;
  // What a webhook makes of an object is not known.
  const isCompared = versions.length > 1 && !hasConversionWebhook(crd) && !preserveUnknownFields;
  const accept = isCompared ? "application/json" : METADATA_LIST;
  // A server-side apply converts an object to each version that its managedFields name.
  const fails: Parameters<typeof lookAtObjects>[3] = (version, object) => {
    const known = versions.find((one) => one.name === version);
    return known === undefined || (isCompared && droppedFields(schemaOf(known), object, true, true).length > 0);
  };
  return diagnose(crd, await lookAtObjects(client, objectsOf(crd), signal, fails, undefined, accept), isRunAlive);
}

/**
 * What is wrong with a CRD, and what helps.
 * @param isRunAlive whether the run that froze it lives; missing where none did, or that cannot be told
 */
export function diagnose(crd: Crd, objects: FoundObjects, isRunAlive?: boolean): readonly Finding[] {
  const { deletionTimestamp, name: object } = crd.metadata;
  const repair = `ksvm doctor ${object} --repair`;
  const findings: Finding[] = [];
  const add = (
    finding: FindingKind,
    severity: Finding["severity"],
    meaning: string,
    help: string,
    about: Pick<Finding, "objects" | "versions"> = {},
  ): void => void findings.push({ finding, severity, object, ...about, meaning, help });
  const counted = objects.count === undefined ? {} : { objects: objects.count };

  const problem = crdProblem(crd);
  const lost = deletionTimestamp === undefined ? lostVersions(crd) : [];
  if (problem !== undefined) {
    add("blocked-crd", lost.length > 0 ? "data" : "action", problem.reason, problem.help, { versions: lost });
  }
  // Its objects go with it.
  if (deletionTimestamp !== undefined) return findings;

  const { fieldVersions, unreadableIn } = objects;
  const cause = objects.problem ?? objects.conversionProblem;
  if (unreadableIn !== undefined) {
    const meaning = `objects are stored in ${unreadableIn}, which the CRD no longer has: no client can list any object`;
    add("unreadable-objects", "data", meaning, repair, { versions: [unreadableIn], objects: "unknown" });
  } else if (cause !== undefined) {
    const meaning = `it is not known whether all objects can be read: ${cause}`;
    const help = "make what the message names work, or grant list on the resource, and run ksvm doctor again";
    add("unlistable-objects", "unknown", meaning, help);
  }
  const restored = crd.spec.versions.filter(isRestored).map((version) => version.name);
  if (restored.length > 0) {
    const names = restored.join(", ");
    const meaning = `ksvm doctor brought ${names} back, and has not removed it again: it is at work, or was interrupted`;
    add("unfinished-repair", "data", meaning, repair, { versions: restored, ...counted });
  }
  const doubt = pruneDoubt(crd);
  if (doubt !== undefined) {
    const about = { versions: unlistedVersions(crd), ...counted };
    add("unproven-prune", "data", doubt, `ksvm migrate ${object} --force`, about);
  }
  if (problem === undefined && !isClean(crd) && isRunAlive !== true && restored.length === 0) {
    const storage = storageVersion(crd);
    const others = (crd.status?.storedVersions ?? []).filter((version) => version !== storage);
    const old = others.join(", ");
    const meaning =
      others.length === 0
        ? `storedVersions lacks the storage version ${storage}`
        : `objects may be stored in ${old}, which cannot leave the CRD before they are migrated to ${storage}`;
    add("stale-stored-versions", "action", meaning, `ksvm migrate ${object}`, { versions: others });
  }
  if (fieldVersions !== undefined && isRunAlive !== true) {
    const why = "which is gone, or lacks a field that they have: every server-side apply of them fails";
    const about = { versions: fieldVersions.versions, objects: fieldVersions.objects };
    const help = `ksvm migrate ${object} --force`;
    add("managed-fields", "action", `${fieldVersionsText(fieldVersions)}, ${why}`, help, about);
  }

  const freezer = freezerOf(crd.metadata);
  const lift = `ksvm unfreeze ${object}`;
  if (freezer === "other") {
    const meaning = `another client froze the storage version (annotation ${MIGRATING}): no migration can start`;
    const names = `"kubectl get crd ${object} -o yaml --show-managed-fields"`;
    add("foreign-freeze", "action", meaning, `ask its owner, whom ${names} names; if the freeze is left over: ${lift}`);
  } else if (freezer !== undefined && isRunAlive !== true) {
    const run = `${freezer.identity} froze the storage version at ${freezer.since}, and`;
    if (isRunAlive === undefined) {
      const meaning = `${run} this user may not read Lease "${freezer.lease}", which shows whether that run lives`;
      add("stuck-freeze", "unknown", meaning, `if that run is over: ${lift}`);
    } else {
      add("stuck-freeze", "action", `${run} that run is dead: nobody renews Lease "${freezer.lease}"`, lift);
    }
  }
  return findings;
}

/** The CRDs that a repair is for: those whose objects are unreadable, or were before a repair that has not ended. */
export function toRepair(findings: readonly Finding[]): readonly string[] {
  const found = findings.filter(({ finding, severity }) => severity === "data" && finding !== "unproven-prune");
  return [...new Set(found.map(({ object }) => object))];
}

/** Whether a silent one is dead or hangs cannot be told from here: one that wakes up writes the version that it knew. */
async function silentApiServers(client: Client, signal: AbortSignal): Promise<readonly Finding[]> {
  const silent = await silentLeases(client, signal).catch((error: unknown) => ({ error }));
  if ("error" in silent) {
    const { error } = silent;
    // Without identity Leases there is none to look at.
    if (error instanceof ApiServerMissing) return [];
    if (!(error instanceof KsvmError) || error.code !== "Forbidden") throw error;
    const help = "run ksvm doctor as a user who may";
    return [{ finding: "not-looked-at", severity: "unknown", object: "cluster", meaning: error.message, help }];
  }
  return silent.map(({ metadata: { labels, name }, spec }) => {
    const host = labels?.["kubernetes.io/hostname"];
    const where = host === undefined ? "" : ` of host ${host}`;
    const meaning =
      `API server ${name}${where} has not renewed its identity Lease since ${String(spec?.renewTime)}: it hangs or ` +
      "is gone, and migrations wait for it for up to an hour";
    const help = `only if that API server is gone for good: kubectl delete lease ${name} -n kube-system`;
    return { finding: "silent-api-server", severity: "action", object: `leases/${name}`, meaning, help };
  });
}
