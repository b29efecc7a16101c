import { isIP } from "node:net";
import type { V1CustomResourceDefinitionVersion } from "@kubernetes/client-node";
import { objectIn } from "../api/json-fields.ts";
import { ApiServerMissing, identityLeases } from "../apiservers/find.ts";
import { findReplicas, shakeHands } from "../certs/replicas.ts";
import { KsvmError, messageOf } from "../errors.ts";
import { isStorageMigrating } from "../freeze/by-hand.ts";
import { type FreezeOwner, freezerOf, isHeld } from "../freeze/freeze.ts";
import { MIGRATING, STORAGE_MIGRATING, WEBHOOK_NAME } from "../freeze/rule.ts";
import { failedPruneOf, pruneDoubtOf } from "../in-tree/prune-doubt.ts";
import type { Client } from "../kube/client.ts";
import { ApiError, unlessForbidden } from "../kube/errors.ts";
import {
  collectionPath,
  type Crd,
  isClean,
  type Lease,
  storageVersion,
  WEBHOOK_CONFIGURATIONS,
} from "../kube/objects.ts";
import { type InTreeMigration, inTreeMigrations, inTreeResource, isInTreeUnfinished } from "../migrator/in-tree.ts";
import { crdProblem, lostVersions } from "./crd-state.ts";
import {
  ask,
  everyCrdMetadata,
  everyItem,
  fieldVersionsText,
  findCrd,
  forEach,
  type FoundObjects,
  lookAtObjects,
  objectsOf,
} from "./inventory.ts";
import { droppedFields } from "./losses.ts";

/** What is wrong. */
export type FindingKind =
  /** A state of the CRD stops everything. */
  | "blocked-crd"
  /** Objects are stored in a version that the CRD no longer has. */
  | "unreadable-objects"
  /** Kubernetes' own migrator may have pruned storedVersions, and its migration has not succeeded. */
  | "unproven-prune"
  /** `ksvm doctor --repair` brought a version back and did not come to its end. */
  | "unfinished-repair"
  /** The objects cannot be listed, for another reason. */
  | "unlisted-objects"
  /** managedFields of objects name a version that the CRD no longer has. */
  | "managed-fields"
  /** storedVersions lists more than the storage version. */
  | "stale-stored-versions"
  /** The run that froze the CRD is dead. */
  | "stuck-freeze"
  /** Another client froze the CRD. */
  | "foreign-freeze"
  /** The condition StorageMigrating is True, and no migration explains it. */
  | "stuck-storage-migrating"
  /** An API server stopped to renew its identity Lease. */
  | "silent-api-server"
  /** The configuration of ksvm's webhook is there, and nothing answers. */
  | "silent-webhook"
  /** This user may not look. */
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

/** What is known of one CRD. */
export interface CrdFacts {
  readonly crd: Crd;
  /** Missing where the CRD serves no version. */
  readonly objects?: FoundObjects | undefined;
  /** Of a CRD that preserves unknown fields: those that no schema describes. */
  readonly undescribed?: readonly string[];
  /** Who froze it, and whether that run lives: `undefined` where that cannot be told. */
  readonly freeze?: { readonly owner: FreezeOwner | "other"; readonly isAlive?: boolean | undefined } | undefined;
  /** Missing where this user may not list them. */
  readonly inTree?: readonly InTreeMigration[] | undefined;
}

/**
 * Looks at CRDs, and where none is named, at every CRD and at what does not belong to one. A freeze is watched for as
 * long as the Lease of its run lasts, an identity Lease that looks overdue for 15 s.
 *
 * @throws {KsvmError} ResourceNotFound for a name of no CRD; {ApiError}
 */
export async function examine(
  client: Client,
  given: readonly string[],
  signal: AbortSignal,
): Promise<{ readonly items: readonly Finding[]; readonly lookedAt: number }> {
  const names = new Set(given);
  if (given.length === 0) for await (const { metadata } of everyCrdMetadata(client, signal)) names.add(metadata.name);
  const inTree = await inTreeMigrations(client, signal);
  const found = await forEach([...names].toSorted(), async (name) => {
    const crd = await findCrd(client, name, signal);
    if (crd !== undefined) return examineCrd(client, crd, inTree, signal);
    if (given.length === 0) return [];
    throw new KsvmError("ResourceNotFound", `Cannot diagnose "${name}": no CustomResourceDefinition has this name`);
  });
  const unseen = "storageversionmigrations.storagemigration.k8s.io";
  const items = [
    ...found.flat(),
    ...(given.length > 0
      ? []
      : [...(await silentApiServers(client, signal)), ...(await silentWebhook(client, signal))]),
    ...(inTree === undefined ? [notLookedAt("migrations", unseen)] : []),
  ];
  return { items, lookedAt: names.size };
}

/** Findings that a run or Kubernetes' own migrator may end by itself. */
const OF_THE_MOMENT: ReadonlySet<FindingKind> = new Set(["stuck-freeze", "stuck-storage-migrating", "unproven-prune"]);

async function examineCrd(
  client: Client,
  crd: Crd,
  inTree: readonly InTreeMigration[] | undefined,
  signal: AbortSignal,
): Promise<readonly Finding[]> {
  const isGone = (version: string): boolean => crd.spec.versions.every(({ name }) => name !== version);
  const listed = objectsOf(crd);
  const facts = {
    crd,
    objects: listed.versions.length === 0 ? undefined : await lookAtObjects(client, listed, signal, isGone),
    undescribed: await undescribedFields(client, crd, listed.versions[0], signal),
    freeze: await freezeOf(client, crd, undefined, signal),
    inTree,
  };
  const first = diagnose(facts);
  if (!first.some(({ finding }) => OF_THE_MOMENT.has(finding))) return first;
  const migrations = await inTreeMigrations(client, signal);
  const now = await findCrd(client, crd.metadata.name, signal);
  if (now === undefined) return [];
  const freeze = await freezeOf(client, now, facts.freeze, signal);
  return diagnose({ ...facts, crd: now, freeze, inTree: migrations }).filter(
    ({ finding }) => !OF_THE_MOMENT.has(finding) || first.some((one) => one.finding === finding),
  );
}

/** @param known what was found a moment ago: the same run is not watched again */
async function freezeOf(
  client: Client,
  crd: Crd,
  known: CrdFacts["freeze"],
  signal: AbortSignal,
): Promise<CrdFacts["freeze"]> {
  const owner = freezerOf(crd.metadata);
  if (owner === undefined || owner === "other") return owner && { owner };
  if (JSON.stringify(owner) === JSON.stringify(known?.owner)) return known;
  return { owner, isAlive: await unlessForbidden(isHeld(client, owner, signal)) };
}

/** Objects may be of any size: the fields of the first ones are told. */
const OBJECTS_READ = 200;

/** The fields that the API server drops once `preserveUnknownFields` is false. */
async function undescribedFields(
  client: Client,
  { spec: { group, names, preserveUnknownFields, versions } }: Crd,
  version: string | undefined,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const fields = new Set<string>();
  if (preserveUnknownFields !== true || version === undefined) return [];
  const schema = objectIn(versions.find(({ name }) => name === version)?.schema?.openAPIV3Schema);
  const path = collectionPath({ group, plural: names.plural, version });
  let read = 0;
  try {
    for await (const object of everyItem(client, path, signal, { limit: 20 })) {
      for (const field of droppedFields(schema ?? {}, object, true)) fields.add(field);
      if (++read >= OBJECTS_READ) break;
    }
  } catch (error) {
    // That they cannot be listed is a finding of its own.
    if (!(error instanceof ApiError)) throw error;
  }
  return [...fields].toSorted();
}

/** What is wrong with a CRD, and what helps. */
export function diagnose({ crd, freeze, inTree, objects, undescribed = [] }: CrdFacts): readonly Finding[] {
  const object = crd.metadata.name;
  const repair = `ksvm doctor ${object} --repair`;
  const findings: Finding[] = [];
  const add = (
    finding: FindingKind,
    severity: Finding["severity"],
    meaning: string,
    help: string,
    about: Pick<Finding, "objects" | "versions"> = {},
  ): void => void findings.push({ finding, severity, object, ...about, meaning, help });
  const counted = objects?.count === undefined ? {} : { objects: objects.count };

  const problem = crdProblem(crd);
  if (problem !== undefined) {
    const versions = crd.metadata.deletionTimestamp === undefined ? lostVersions(crd) : [];
    const fields = undescribed.length === 0 ? "" : `: ${undescribed.join(", ")}`;
    const severity = versions.length > 0 ? "data" : "action";
    const about = versions.length > 0 ? { versions } : {};
    add("blocked-crd", severity, `${problem.reason}${fields}`, problem.help, about);
  }
  // Its objects go with it.
  if (crd.metadata.deletionTimestamp !== undefined) return findings;

  const lost = objects?.unreadableIn;
  const unlisted = objects?.problem ?? objects?.conversionProblem;
  if (lost !== undefined) {
    const meaning =
      `objects are stored in ${lost}, which the CRD no longer has: no client can list them, nor read those; ` +
      `how many is unknown until ${lost} is back`;
    add("unreadable-objects", "data", meaning, repair, { versions: [lost], objects: "unknown" });
  } else if (unlisted !== undefined) {
    const meaning = `the objects cannot be listed, so it is not known whether they can be read: ${unlisted}`;
    const help = "make what the message names work, or grant list on the resource, and run ksvm doctor again";
    add("unlisted-objects", "unknown", meaning, help);
  }
  const restored = crd.spec.versions.filter(isRestored).map(({ name }) => name);
  if (restored.length > 0) {
    const names = restored.join(", ");
    const meaning = `ksvm doctor brought ${names} back, and was interrupted before every object was migrated`;
    add("unfinished-repair", "data", meaning, repair, { versions: restored, ...counted });
  }

  const isAtWork = inTree?.some((one) => inTreeResource(one) === object && isInTreeUnfinished(one)) === true;
  const { failed, versions } = failedPruneOf(crd, inTree ?? []);
  const doubt = pruneDoubtOf(crd);
  if (versions.length > 0 && (failed.length > 0 || doubt !== undefined)) {
    const names = failed.map(({ metadata }) => metadata.name).join(", ");
    const why =
      failed.length > 0 ? `Kubernetes' own migration failed (${names})` : `Kubernetes' own migrator: ${doubt}`;
    const meaning =
      `${why}, and storedVersions lacks ${versions.join(", ")}: objects may still be stored in it, and are lost ` +
      "when the CRD drops it";
    // One that is at work may still succeed, and no repair may begin beside it.
    const isWaiting = failed.length === 0 && isAtWork;
    const help = isWaiting ? `wait until that migration has ended; unless it succeeds: ${repair}` : repair;
    add("unproven-prune", isWaiting ? "unknown" : "data", meaning, help, { versions, ...counted });
  }

  const isMoving = freeze?.isAlive === true || isAtWork;
  if (problem === undefined && !isClean(crd) && !isMoving && restored.length === 0) {
    const storage = storageVersion(crd);
    const others = (crd.status?.storedVersions ?? []).filter((version) => version !== storage);
    const old = others.join(", ");
    const meaning =
      others.length === 0
        ? `storedVersions lacks the storage version ${storage}`
        : `objects may be stored in ${old}, which cannot leave the CRD before they are migrated to ${storage}`;
    add("stale-stored-versions", "action", meaning, `ksvm migrate ${object}`, { versions: others });
  }
  const named = objects?.fieldVersions;
  if (named !== undefined && freeze?.isAlive !== true) {
    const why = "which the CRD no longer has: every server-side apply of those objects fails";
    const meaning = `${fieldVersionsText(named)}, ${why}`;
    const about = { versions: named.versions, objects: named.objects };
    add("managed-fields", "action", meaning, `ksvm migrate ${object} --force`, about);
  }

  const lift = `ksvm unfreeze ${object}`;
  if (freeze?.owner === "other") {
    const meaning = `another client froze the storage version (annotation ${MIGRATING}): no migration can start`;
    const names = `"kubectl get crd ${object} -o yaml --show-managed-fields"`;
    add("foreign-freeze", "action", meaning, `ask its owner, whom ${names} names; if the freeze is left over: ${lift}`);
  } else if (freeze !== undefined && freeze.isAlive !== true) {
    const { identity, lease, since } = freeze.owner;
    const run = `${identity} froze the storage version at ${since}`;
    if (freeze.isAlive === undefined) {
      const meaning = `${run}, and whether that run lives cannot be told from Lease "${lease}"`;
      add("stuck-freeze", "unknown", meaning, `if that run is over: ${lift}`);
    } else {
      const dead = `that run is dead: Lease "${lease}" is not renewed. The storage version cannot be changed`;
      add("stuck-freeze", "action", `${run}; ${dead}`, lift);
    }
  }
  if (isStorageMigrating(crd) && inTree !== undefined && !isAtWork) {
    const meaning =
      `its condition ${STORAGE_MIGRATING} is True, and no unfinished migration of Kubernetes' own migrator explains ` +
      "that: the storage version cannot be changed";
    add("stuck-storage-migrating", "action", meaning, lift);
  }
  return findings;
}

/**
 * In the entry itself, so that it comes and goes with it: an entry that a vendor brings back is not taken for one of
 * ours.
 */
const DESCRIPTION =
  "Brought back by ksvm doctor --repair until no object is stored in this version; it removes it then.";
const PRESERVE = "x-kubernetes-preserve-unknown-fields";

/**
 * The entry of `spec.versions` for a version that the CRD lost: no client can use it, and the API server keeps every
 * field.
 */
export function restoredVersion(name: string): V1CustomResourceDefinitionVersion {
  const openAPIV3Schema = { type: "object", description: DESCRIPTION, [PRESERVE]: true };
  return { name, served: false, storage: false, schema: { openAPIV3Schema } };
}

/** Whether an entry is one of {@link restoredVersion}, and as it was written. */
export function isRestored({ schema, served, storage }: V1CustomResourceDefinitionVersion): boolean {
  const { description, [PRESERVE]: preserves } = objectIn(schema?.openAPIV3Schema) ?? {};
  return !served && !storage && description === DESCRIPTION && preserves === true;
}

/** An API server that lives renews its identity Lease every 10 s, and up to half a second later. */
const WATCH_LEASES_MS = 15_000;
const OVERDUE_MS = 30_000;

function renewedAt({ spec }: Lease): number {
  return Date.parse(String(spec?.renewTime));
}

/**
 * The API servers whose identity Leases were overdue, and stood still while they were watched. Whether one is dead or
 * hangs cannot be told from here: one that wakes up writes the version that it knew.
 */
async function silentApiServers(client: Client, signal: AbortSignal): Promise<readonly Finding[]> {
  try {
    const before = await identityLeases(client, {}, signal);
    // That of the API server that answered is among them, so no clock of this machine takes part.
    const newest = Math.max(...before.map(renewedAt));
    const overdue = before.filter((lease) => newest - renewedAt(lease) > OVERDUE_MS);
    if (overdue.length === 0) return [];
    await client.clock.sleep(WATCH_LEASES_MS, signal);
    const stood = ({ metadata: { resourceVersion, uid } }: Lease): boolean =>
      overdue.some(({ metadata }) => metadata.uid === uid && metadata.resourceVersion === resourceVersion);
    return (await identityLeases(client, {}, signal)).filter(stood).map(({ metadata: { labels = {}, name }, spec }) => {
      const { "kubernetes.io/hostname": host } = labels;
      const where = host === undefined ? "" : ` of host ${host}`;
      return {
        finding: "silent-api-server",
        severity: "action",
        object: `leases/${name}`,
        meaning:
          `API server ${name}${where} has not renewed its identity Lease since ${String(spec?.renewTime)}: it hangs or ` +
          "is gone, and migrations wait for it until another API server deletes the Lease, an hour later",
        help: `only if that API server is gone for good: kubectl delete lease ${name} -n kube-system`,
      };
    });
  } catch (error) {
    if (error instanceof ApiServerMissing) return [];
    if (!(error instanceof KsvmError) || error.code !== "Forbidden") throw error;
    return [notLookedAt("leases in kube-system", "identity Leases")];
  }
}

const HTTPS_PORT = 443;

/** A ValidatingWebhookConfiguration, as far as it says where the webhook is. */
interface Configuration {
  readonly webhooks?: readonly {
    readonly clientConfig?: {
      readonly url?: string;
      readonly service?: { readonly namespace: string; readonly name: string };
    };
  }[];
}

/**
 * Whether nothing answers for ksvm's webhook: of a Service the API server knows the endpoints that serve, a URL is
 * called from here by a TLS handshake.
 */
async function silentWebhook(client: Client, signal: AbortSignal): Promise<readonly Finding[]> {
  const object = `validatingwebhookconfigurations/${WEBHOOK_NAME}`;
  const find = () => client.find<Configuration>(`${WEBHOOK_CONFIGURATIONS}/${WEBHOOK_NAME}`, { signal });
  const found = await unlessForbidden(ask(client, async () => ({ configuration: await find() }), signal));
  if (found === undefined) return [notLookedAt(object, "what answers for it")];
  const { configuration } = found;
  if (configuration === undefined) return [];
  const { service, url } = configuration.webhooks?.[0]?.clientConfig ?? {};
  let silence: string | undefined;
  if (url === undefined) {
    const { name = "", namespace = "" } = service ?? {};
    const replicas = await findReplicas(client, { namespace, service: name }, signal);
    if (replicas === undefined) return [notLookedAt(object, `endpointslices in ${namespace}`)];
    if (replicas.length === 0) silence = `Service "${namespace}/${name}" has no endpoint that serves`;
  } else {
    const { hostname, port } = new URL(url);
    const host = hostname.replaceAll(/[[\]]/g, "");
    const address = { host, port: port === "" ? HTTPS_PORT : Number(port) };
    await shakeHands(address, isIP(host) === 0 ? host : "", signal).catch((error: unknown) => {
      signal.throwIfAborted();
      silence = `${url} does not answer from here (${messageOf(error)})`;
    });
  }
  if (silence === undefined) return [];
  const blocked = "nothing is pruned, and the storage version of a frozen CRD cannot be changed";
  const meaning = `${silence}: ${blocked}, even where that is allowed`;
  const remove = `kubectl delete validatingwebhookconfiguration ${WEBHOOK_NAME}`;
  const help = `start ksvm again, or if it was uninstalled: ${remove}`;
  return [{ finding: "silent-webhook", severity: "action", object, meaning, help }];
}

function notLookedAt(object: string, what: string): Finding {
  return {
    finding: "not-looked-at",
    severity: "unknown",
    object,
    meaning: `this user may not look at ${what}`,
    help: "run ksvm doctor as a user who may list and get it",
  };
}
