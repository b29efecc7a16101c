import {
  type CrdVersion,
  type CustomResourceDefinition,
  isClean,
  storageVersionOf,
  storedVersionsOf,
} from "../api/crd.ts";
import { objectIn } from "../api/json-fields.ts";
import type { FreezeOwner } from "../freeze/freeze.ts";
import { MIGRATING, STORAGE_MIGRATING, WEBHOOK_NAME } from "../freeze/rule.ts";
import { type InTreeMigration, inTreeResourceOf, isInTreeUnfinished } from "../in-tree/in-tree-migrations.ts";
import { failedPruneOf, pruneDoubtOf } from "../in-tree/prune-doubt.ts";
import type { Lease } from "../kube/objects.ts";
import type { ListedObjects } from "../plan/check-types.ts";
import { isStorageMigrating } from "../plan/lift-by-hand.ts";
import { unservedTextOf } from "../plan/listed-objects.ts";

/**
 * What is wrong.
 *
 * - `unreadable-objects`: objects are stored in a version that the CRD no longer has
 * - `unproven-prune`: Kubernetes' own migrator may have pruned storedVersions, and its migration has not succeeded
 * - `unfinished-repair`: `ksvm doctor --repair` brought a version back and did not come to its end
 * - `unlisted-objects`: the objects cannot be listed, for another reason
 * - `stale-stored-versions`: storedVersions lists more than the storage version
 * - `stuck-freeze`: the run that froze the CRD is dead
 * - `foreign-freeze`: another client froze the CRD
 * - `stuck-storage-migrating`: the condition StorageMigrating is True, and no migration explains it
 * - `silent-api-server`: an API server stopped to renew its identity Lease
 * - `silent-webhook`: the configuration of ksvm's webhook is there, and nothing answers
 * - `not-looked-at`: this user may not look
 */
export type FindingKind =
  | "unreadable-objects"
  | "unproven-prune"
  | "unfinished-repair"
  | "unlisted-objects"
  | "stale-stored-versions"
  | "stuck-freeze"
  | "foreign-freeze"
  | "stuck-storage-migrating"
  | "silent-api-server"
  | "silent-webhook"
  | "not-looked-at";

/** How bad it is: `data` is unreadable or would be lost, `action` needs one, `unknown` is not known. */
export type Severity = "data" | "action" | "unknown";

/** One thing that is wrong. Field names are those of `ksvm doctor -o json`. */
export interface Finding {
  readonly finding: FindingKind;
  readonly severity: Severity;
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

/** Who froze a CRD, and whether that run lives: `undefined` where that cannot be told. */
export interface FoundFreeze {
  readonly owner: FreezeOwner | "other";
  readonly isAlive?: boolean | undefined;
}

/** What is known of one CRD. */
export interface CrdFacts {
  readonly crd: CustomResourceDefinition;
  /** Missing where the CRD serves no version. */
  readonly objects?: ListedObjects | undefined;
  /** Missing where the CRD is not frozen by the annotation. */
  readonly freeze?: FoundFreeze | undefined;
}

/** Whether something answers for ksvm's webhook. */
export type WebhookFacts =
  | { readonly state: "absent" | "answers" }
  | { readonly state: "silent" | "unknown"; readonly reason: string };

/** What a diagnosis rests on. */
export interface DoctorFacts {
  readonly crds: readonly CrdFacts[];
  /** Missing where this user may not list them. */
  readonly inTree?: readonly InTreeMigration[] | undefined;
  /** Missing where only some CRDs are asked about. */
  readonly cluster?: ClusterFacts | undefined;
}

/** What does not belong to one CRD. */
export interface ClusterFacts {
  /** Of API servers that were not renewed while it was looked. Missing where this user may not list them. */
  readonly silentLeases?: readonly Lease[] | undefined;
  readonly webhook: WebhookFacts;
}

/** What is wrong, CRDs first, each with what helps. */
export function diagnose({ cluster, crds, inTree }: DoctorFacts): readonly Finding[] {
  const findings = crds.flatMap((facts) => crdFindings(facts, inTree));
  const unseen = inTree === undefined ? [notLookedAt("migrations", IN_TREE_UNSEEN)] : [];
  return [...findings, ...(cluster === undefined ? [] : clusterFindings(cluster)), ...unseen];
}

const IN_TREE_UNSEEN = "storageversionmigrations.storagemigration.k8s.io";

function crdFindings(facts: CrdFacts, inTree: readonly InTreeMigration[] | undefined): readonly Finding[] {
  if (facts.crd.metadata.deletionTimestamp !== undefined) {
    return [];
  }
  return [
    ...lossFindings(facts),
    ...pruneFindings(facts, inTree ?? []),
    ...staleFindings(facts, inTree ?? []),
    ...freezeFindings(facts),
    ...(inTree === undefined ? [] : conditionFindings(facts, inTree)),
  ];
}

function lossFindings({ crd, objects }: CrdFacts): readonly Finding[] {
  const object = crd.metadata.name;
  const repair = `ksvm doctor ${object} --repair`;
  const lost = objects?.unreadableIn;
  const restored = restoredVersionsOf(crd);
  const findings: Finding[] = [];
  if (lost !== undefined) {
    findings.push({
      finding: "unreadable-objects",
      severity: "data",
      object,
      versions: [lost],
      objects: "unknown",
      meaning:
        `objects are stored in ${lost}, which the CRD no longer has: no client can list them, nor read those; ` +
        `how many is unknown until ${lost} is back`,
      help: repair,
    });
  } else {
    findings.push(...unlistedFindings({ crd, objects }));
  }
  if (restored.length > 0) {
    findings.push({
      finding: "unfinished-repair",
      severity: "data",
      object,
      versions: restored,
      ...(objects?.count === undefined ? {} : { objects: objects.count }),
      meaning: `ksvm doctor brought ${restored.join(", ")} back, and was interrupted before every object was migrated`,
      help: repair,
    });
  }
  return findings;
}

function unlistedFindings({ crd, objects }: CrdFacts): readonly Finding[] {
  const unserved = unservedTextOf(crd);
  const problem = objects?.problem ?? unserved;
  if (problem === undefined) {
    return [];
  }
  const does =
    unserved === undefined ? "make what the message names work, or grant list on the resource" : "serve a version";
  return [
    {
      finding: "unlisted-objects",
      severity: "unknown",
      object: crd.metadata.name,
      meaning: `the objects cannot be listed, so it is not known whether they can be read: ${problem}`,
      help: `${does}, and run ksvm doctor again`,
    },
  ];
}

function pruneFindings(facts: CrdFacts, inTree: readonly InTreeMigration[]): readonly Finding[] {
  const { failed, versions } = failedPruneOf(facts.crd, inTree);
  const doubt = pruneDoubtOf(facts.crd);
  if (versions.length === 0 || (failed.length === 0 && doubt === undefined)) {
    return [];
  }
  const object = facts.crd.metadata.name;
  const names = failed.map(({ metadata }) => metadata.name).join(", ");
  const why = failed.length > 0 ? `Kubernetes' own migration failed (${names})` : `Kubernetes' own migrator: ${doubt}`;
  const base = {
    finding: "unproven-prune",
    object,
    versions,
    ...(facts.objects?.count === undefined ? {} : { objects: facts.objects.count }),
    meaning:
      `${why}, and storedVersions lacks ${versions.join(", ")}: objects may still be ` +
      "stored in it, and are lost when the CRD drops it",
  } as const;
  const help = `ksvm doctor ${object} --repair`;
  // One that is at work may still succeed, and no repair may begin beside it.
  return failed.length === 0 && isAtWork(facts, inTree)
    ? [{ ...base, severity: "unknown", help: `wait until that migration has ended; unless it succeeds: ${help}` }]
    : [{ ...base, severity: "data", help }];
}

/** Whether a migration of Kubernetes' own migrator may still write to a CRD or its objects. */
export function isAtWork({ crd }: Pick<CrdFacts, "crd">, inTree: readonly InTreeMigration[]): boolean {
  return inTree.some((one) => inTreeResourceOf(one) === crd.metadata.name && isInTreeUnfinished(one));
}

/** One that is being migrated is not stale for want of a migration. */
function staleFindings({ crd, freeze }: CrdFacts, inTree: readonly InTreeMigration[]): readonly Finding[] {
  const object = crd.metadata.name;
  if (isClean(crd) || freeze?.isAlive === true || isAtWork({ crd }, inTree) || restoredVersionsOf(crd).length > 0) {
    return [];
  }
  const storage = storageVersionOf(crd);
  const versions = storedVersionsOf(crd).filter((version) => version !== storage);
  const meaning =
    versions.length === 0
      ? `storedVersions lacks the storage version ${storage}`
      : `objects may be stored in ${versions.join(", ")}, which cannot leave the CRD before they are migrated to ` +
        storage;
  return [
    {
      finding: "stale-stored-versions",
      severity: "action",
      object,
      versions,
      meaning,
      help: `ksvm migrate ${object}`,
    },
  ];
}

function freezeFindings({ crd, freeze }: CrdFacts): readonly Finding[] {
  const object = crd.metadata.name;
  if (freeze === undefined || freeze.isAlive === true) {
    return [];
  }
  const lift = `ksvm unfreeze ${object}`;
  if (freeze.owner === "other") {
    const meaning = `another client froze the storage version (annotation ${MIGRATING}): no migration can start`;
    const names = `"kubectl get crd ${object} -o yaml --show-managed-fields"`;
    const help = `ask its owner, whom ${names} names; if the freeze is left over: ${lift}`;
    return [{ finding: "foreign-freeze", severity: "action", object, meaning, help }];
  }
  const { identity, lease, since } = freeze.owner;
  const run = `${identity} froze the storage version at ${since}`;
  if (freeze.isAlive === undefined) {
    const meaning = `${run}, and whether that run lives cannot be told from Lease "${lease}"`;
    return [{ finding: "stuck-freeze", severity: "unknown", object, meaning, help: `if that run is over: ${lift}` }];
  }
  const meaning = `${run}; that run is dead: Lease "${lease}" is not renewed. The storage version cannot be changed`;
  return [{ finding: "stuck-freeze", severity: "action", object, meaning, help: lift }];
}

function conditionFindings({ crd }: CrdFacts, inTree: readonly InTreeMigration[]): readonly Finding[] {
  const object = crd.metadata.name;
  if (!isStorageMigrating(crd) || isAtWork({ crd }, inTree)) {
    return [];
  }
  const meaning =
    `its condition ${STORAGE_MIGRATING} is True, and no unfinished migration of Kubernetes' own migrator explains ` +
    "that: the storage version cannot be changed";
  const help = `ksvm unfreeze ${object}`;
  return [{ finding: "stuck-storage-migrating", severity: "action", object, meaning, help }];
}

function clusterFindings({ silentLeases, webhook }: ClusterFacts): readonly Finding[] {
  const leases = silentLeases?.map(leaseFinding) ?? [notLookedAt("leases in kube-system", "identity Leases")];
  return [...leases, ...webhookFindings(webhook)];
}

/** Whether it is dead or hangs cannot be told from here: one that wakes up writes the version that it knew. */
function leaseFinding({ metadata: { labels = {}, name }, spec }: Lease): Finding {
  const host = labels["kubernetes.io/hostname"];
  return {
    finding: "silent-api-server",
    severity: "action",
    object: `leases/${name}`,
    meaning:
      `API server ${name}${host === undefined ? "" : ` of host ${host}`} has not renewed its identity Lease since ` +
      `${String(spec?.renewTime)}: it hangs or is gone, and migrations wait for it until another API server deletes ` +
      "the Lease, an hour later",
    help: `only if that API server is gone for good: kubectl delete lease ${name} -n kube-system`,
  };
}

function webhookFindings(webhook: ClusterFacts["webhook"]): readonly Finding[] {
  const object = `validatingwebhookconfigurations/${WEBHOOK_NAME}`;
  switch (webhook.state) {
    case "absent":
    case "answers":
      return [];
    case "unknown":
      return [{ ...notLookedAt(object, "what answers for it"), meaning: webhook.reason }];
    case "silent":
      return [
        {
          finding: "silent-webhook",
          severity: "action",
          object,
          meaning:
            `${webhook.reason}: nothing is pruned, and the storage version of a frozen CRD cannot be changed even where ` +
            "that is allowed",
          help:
            "start ksvm again, or if it was uninstalled: kubectl delete validatingwebhookconfiguration " + WEBHOOK_NAME,
        },
      ];
  }
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
export function restoredVersion(name: string): CrdVersion {
  const schema = { openAPIV3Schema: { type: "object", description: DESCRIPTION, [PRESERVE]: true } };
  return { name, served: false, storage: false, schema };
}

/** Whether an entry is one of {@link restoredVersion}, and as it was written. */
export function isRestored({ schema, served, storage }: CrdVersion): boolean {
  const { description, [PRESERVE]: preserves } = objectIn(objectIn(schema)?.["openAPIV3Schema"]) ?? {};
  return !served && !storage && description === DESCRIPTION && preserves === true;
}

/** The names of the versions of a CRD that a repair brought back. */
export function restoredVersionsOf({ spec }: CustomResourceDefinition): readonly string[] {
  return spec.versions.filter(isRestored).map(({ name }) => name);
}
