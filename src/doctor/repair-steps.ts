import type { Finding, FindingKind } from "./doctor-types.ts";

/** What a repair of one CRD would do. Field names are those of `ksvm doctor --repair -o json`. */
export interface RepairPlan {
  readonly name: string;
  /** In this order; each is done only if the one before was. */
  readonly steps: readonly string[];
}

/** Findings that only an object migration settles, in every version that objects may be stored in. */
const LOSSES: ReadonlySet<FindingKind> = new Set(["unreadable-objects", "unproven-prune", "unfinished-repair"]);

/** Whether objects of a CRD are unreadable or would be lost. */
export function isLoss({ finding, severity }: Finding): boolean {
  return LOSSES.has(finding) && severity !== "unknown";
}

/** Whether a repair does anything about it. What it does not know, and what belongs to other owners, it leaves alone. */
export function isRepaired(finding: Finding): boolean {
  const { finding: kind, severity } = finding;
  return (
    isLoss(finding) ||
    kind === "stale-stored-versions" ||
    kind === "stuck-storage-migrating" ||
    (kind === "stuck-freeze" && severity === "action")
  );
}

/** What a repair would do about findings, CRD by CRD. */
export function repairPlans(findings: readonly Finding[]): readonly RepairPlan[] {
  const repaired = findings.filter(isRepaired);
  const names = [...new Set(repaired.map(({ object }) => object))];
  return names.map((name) => ({ name, steps: stepsOf(repaired.filter(({ object }) => object === name)) }));
}

function stepsOf(findings: readonly Finding[]): readonly string[] {
  const has = (kind: FindingKind): boolean => findings.some(({ finding }) => finding === kind);
  const versions = [...new Set(findings.filter(isLoss).flatMap((finding) => finding.versions ?? []))].join(", ");
  const steps: readonly (readonly [isTaken: boolean, step: string])[] = [
    [has("stuck-freeze"), "lift the freeze of the dead run, and remove its policy"],
    [has("stuck-storage-migrating"), "clear the condition StorageMigrating"],
    [has("unreadable-objects"), `add ${versions} back to spec.versions, with served: false and every field kept`],
    [versions !== "", `add ${versions} to status.storedVersions, where it is not`],
    [
      has("unreadable-objects"),
      "list the objects, which counts them; another version that they name is brought back too",
    ],
    [
      versions !== "",
      "freeze, rewrite every object in the storage version, with --force, prune storedVersions, unfreeze",
    ],
    [
      versions === "" && has("stale-stored-versions"),
      "freeze, rewrite every object in the storage version, prune storedVersions, unfreeze",
    ],
    [has("unreadable-objects") || has("unfinished-repair"), "remove what was added to spec.versions again"],
    [
      has("unproven-prune"),
      "delete the migrations of Kubernetes' own migrator that failed, and the condition StorageMigrating that one left",
    ],
  ];
  return steps.filter(([isTaken]) => isTaken).map(([, step]) => step);
}
