import { isClean, storageVersionOf, storedVersionsOf } from "../api/crd.ts";
import { MIGRATING_ANNOTATION, STORAGE_MIGRATING_CONDITION, WEBHOOK_NAME } from "../api/names.ts";
import { describeLease } from "../old/apiservers/missing-api-server.ts";
import { IDENTITY_NAMESPACE, type LiveLease } from "../old/apiservers/control-plane-objects.ts";
import { hasMigratingCondition } from "../old/freeze/freeze-rule.ts";
import { failedPruneOf } from "../in-tree/failed-prune.ts";
import { type InTreeMigration, inTreeResourceOf, isInTreeUnfinished } from "../in-tree/in-tree-migrations.ts";
import { pruneDoubtOf } from "../in-tree/prune-doubt.ts";
import { unservedTextOf } from "../plan/listed-objects.ts";
import type { ClusterFacts, CrdFacts, DoctorFacts, Finding } from "./doctor-types.ts";
import { restoredVersionsOf } from "./restored-version.ts";

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

function isAtWork({ crd }: CrdFacts, inTree: readonly InTreeMigration[]): boolean {
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
      : `objects may be stored in ${versions.join(", ")}, which cannot leave the CRD before they are migrated to ${storage}`;
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
  if (freeze.kind === "other") {
    const by = freeze.manager === undefined ? "another client" : `another client (${freeze.manager})`;
    const meaning = `${by} froze the storage version (annotation ${MIGRATING_ANNOTATION}): no migration can start`;
    const help = `ask its owner; if the freeze is left over: ${lift}`;
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
  if (!hasMigratingCondition(crd) || isAtWork({ crd }, inTree)) {
    return [];
  }
  const meaning =
    `its condition ${STORAGE_MIGRATING_CONDITION} is True, and no unfinished migration of Kubernetes' own migrator explains ` +
    "that: the storage version cannot be changed, and no migration can start";
  const help = `ksvm unfreeze ${object}`;
  return [{ finding: "stuck-storage-migrating", severity: "action", object, meaning, help }];
}

function clusterFindings({ silentLeases, webhook }: ClusterFacts): readonly Finding[] {
  const leases = silentLeases?.map(leaseFinding) ?? [notLookedAt(`leases in ${IDENTITY_NAMESPACE}`, "identity Leases")];
  return [...leases, ...webhookFindings(webhook)];
}

/** Whether it is dead or hangs cannot be told from here: one that wakes up writes the version that it knew. */
function leaseFinding(lease: LiveLease): Finding {
  const seconds = Math.round(lease.renewedMsAgo / 1_000);
  return {
    finding: "silent-api-server",
    severity: "action",
    object: `leases/${lease.name}`,
    meaning:
      `API server ${describeLease(lease)} has not renewed its identity Lease for ${seconds} s: it hangs or is gone, and ` +
      "migrations wait for it until the Lease expires",
    help: `only if that API server is gone for good: kubectl delete lease ${lease.name} -n ${IDENTITY_NAMESPACE}`,
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
          help: `start ksvm again, or if it was uninstalled: kubectl delete validatingwebhookconfiguration ${WEBHOOK_NAME}`,
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
