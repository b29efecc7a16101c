import type { ClusterStatus } from "../../src/plan/cluster-status.ts";
import { estimateOf } from "../../src/plan/estimate.ts";
import type { CountedEntry } from "../../src/plan/inventory.ts";
import type { MigrationLine } from "../../src/plan/migration-lines.ts";
import { parseEvidence } from "../../src/report/parse-evidence.ts";
import type { ReportFacts } from "../../src/report/report-facts.ts";

export const NOW = Date.parse("2026-01-02T10:00:00Z");

/** Of a CRD as it is now. */
export function crdKeyOf(name: string): string {
  return `uid-${name}/3`;
}

/** A CRD that is clean. */
export function crd(name: string, changes: Partial<CountedEntry> = {}): CountedEntry {
  const [plural = "", ...group] = name.split(".");
  return {
    name,
    kind: "Widget",
    type: "CustomResourceDefinition",
    request: { group: group.join("."), version: "v2", resource: plural },
    storageVersion: "v2",
    storedVersions: ["v2"],
    servedVersions: ["v1", "v2"],
    action: "none",
    removableVersions: ["v1"],
    crd: crdKeyOf(name),
    objects: 12,
    ...changes,
  };
}

/** A CRD whose objects may be stored in v1. */
export function staleCrd(name: string, objects: number, changes: Partial<CountedEntry> = {}): CountedEntry {
  const stale = { storedVersions: ["v1", "v2"], action: "migrate", objects, estimate: estimateOf(objects) } as const;
  return crd(name, { ...stale, ...changes });
}

/** A built-in resource of which nothing is known. */
export function builtIn(name: string, changes: Partial<CountedEntry> = {}): CountedEntry {
  return {
    name,
    kind: "Secret",
    type: "built-in",
    request: { group: "", version: "v1", resource: name },
    storageVersion: "v1",
    servedVersions: ["v1"],
    action: "unknown",
    removableVersions: [],
    objects: 40,
    ...changes,
  };
}

export function migrationOf(resource: string, changes: Partial<MigrationLine> = {}): MigrationLine {
  const created = "2026-01-02T09:00:00Z";
  return { name: `${resource}-x1`, resource, controller: "ksvm", state: "Succeeded", created, ...changes };
}

const NOTHING: ClusterStatus = { controller: { state: "none" }, migrations: [], runs: [], freezes: [] };

/** What a report of these entries is made from. */
export function factsOf(
  entries: readonly CountedEntry[],
  { status, ...changes }: Partial<Omit<ReportFacts, "status">> & { readonly status?: Partial<ClusterStatus> } = {},
): ReportFacts {
  const about = { server: "https://10.0.0.1:6443", serverVersion: "v1.36.3", now: NOW, names: [], unavailable: [] };
  return { ...about, entries, evidence: [], status: { ...NOTHING, ...status }, ...changes };
}

const COUNTS = { done: 12, migrated: 12, current: 0, newer: 0, gone: 0, failed: 0, changed: 0, total: 12 };

/** A line of `ksvm migrate -o json` that ends nothing. */
export function eventLine(resource: string, time = "2026-01-02T09:28:51.000Z"): string {
  return JSON.stringify({ time, resource, type: "unfrozen" });
}

/** A line of `ksvm migrate -o json` that ends a run. */
export function resultLine(resource: string, changes: object = {}, time = "2026-01-02T09:30:00.000Z"): string {
  const result = { outcome: "migrated", counts: COUNTS, storedVersions: ["v2"], failures: [], changedObjects: [] };
  return JSON.stringify({ time, resource, type: "result", ...result, ...changes });
}

/** A line of `ksvm verify -o json` that ends a verification of a CRD as it is now. */
export function verificationLine(resource: string, changes: object = {}, time = "2026-01-02T09:40:00.000Z"): string {
  const verification = {
    outcome: "current",
    counts: { current: 12, changed: 0, gone: 0, notShown: 0 },
    apiServers: { servers: ["https://10.0.0.1:6443", "https://10.0.0.2:6443"], of: 2 },
    watermark: "4711",
    storageVersion: "v2",
    crd: crdKeyOf(resource),
    changed: [],
    notShown: [],
  };
  return JSON.stringify({ time, resource, type: "verification", ...verification, ...changes });
}

/** What a file with these lines is evidence of. */
export function evidenceIn(...lines: readonly string[]): ReportFacts["evidence"] {
  return parseEvidence({ source: "run.json", text: `${lines.join("\n")}\n` });
}

/** A cluster with something in each state, for tests and for pictures. */
export function exampleFacts(): ReportFacts {
  const failures = [
    { namespace: "shop", name: "legacy-1", reason: "spec.size: Invalid value: 0: must be greater than 0" },
    { namespace: "shop", name: "legacy-2", reason: "spec.size: Invalid value: -4: must be greater than 0" },
  ];
  const counts = { migrated: 4998, skipped: 0, failed: 2 };
  const message = "ObjectsFailed: 2 of 5000 objects could not be migrated; nothing was pruned";
  const migrations = [
    migrationOf("orders.shop.example.com", { state: "Failed", counts, failures, message, progress: "5000/5000" }),
    migrationOf("pages.web.example.com", { state: "Running", progress: "1200/8000" }),
    migrationOf("widgets.example.com", { progress: "12/12", ended: "2026-01-02T09:02:11Z" }),
  ];
  return factsOf(
    [
      crd("widgets.example.com"),
      crd("gadgets.example.com", { objects: 350 }),
      staleCrd("certificates.pki.example.com", 1240),
      staleCrd("tenants.iam.example.com", 18, { action: "blocked", note: "frozen by another owner" }),
      staleCrd("orders.shop.example.com", 5000),
      staleCrd("pages.web.example.com", 8000),
      builtIn("secrets"),
      builtIn("configmaps", { kind: "ConfigMap", action: "none", storedVersions: ["v1"], objects: 212 }),
    ],
    {
      status: {
        controller: {
          state: "alive",
          lease: "kube-storage-migration/ksvm-controller",
          holder: "ksvm-controller-7d9f-x2x4k",
          renewed: "2026-01-02T09:59:57Z",
        },
        migrations,
      },
      evidence: evidenceIn(
        eventLine("widgets.example.com"),
        resultLine("widgets.example.com"),
        verificationLine("widgets.example.com"),
      ),
    },
  );
}
