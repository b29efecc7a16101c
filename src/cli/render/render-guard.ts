import type { GuardChange, PruneGuardStatus } from "../../prune-guard/manage-prune-guard.ts";
import type { ResultFormat } from "../flags/run-flags.ts";
import { oneLine } from "./printable.ts";
import { documentOf } from "./document.ts";
import { renderResult } from "./render-result.ts";
import { renderTable } from "./render-table.ts";

/** One line for each object that was written or deleted. */
export function describeGuardChanges(changes: readonly GuardChange[]): string {
  const lines = changes.map(({ object, result }) => `${object} ${result}`);
  return (lines.length === 0 ? ["the guard is not enabled: nothing to do"] : lines)
    .map((line) => `${oneLine(line)}\n`)
    .join("");
}

const STATES: Readonly<Record<PruneGuardStatus["state"], string>> = {
  off: "off: nothing watches over status.storedVersions; ksvm guard enable puts the guard in force",
  changed: "changed: an object of the guard is not as ksvm writes it; ksvm guard enable puts it right",
  warn: "warn: an update that removes a version from status.storedVersions is warned about and audited",
  deny: "deny: an update that removes a version from status.storedVersions is denied",
};

/** The text of the guard's state, without a line break at its end. */
export function renderGuard(status: PruneGuardStatus, format: ResultFormat): string {
  return renderResult(documentOf("GuardStatus", status), format, () => [
    [STATES[status.state], ...detailsOf(status)].join("\n"),
    status.allowances.length === 0 ? "" : renderTable([HEADER, ...status.allowances.map(rowOf)]),
  ]);
}

const HEADER = ["CRD", "ALLOWS", "STATE"];

function rowOf({ crd, value, state }: PruneGuardStatus["allowances"][number]): readonly string[] {
  return [crd, value, state];
}

function detailsOf({ allowedUsers, objects, restores }: PruneGuardStatus): readonly string[] {
  return [
    ...(restores ? ["versions that Kubernetes' own migrator removes after a failed migration are put back"] : []),
    ...allowedUsers.map((user) => `allowed: ${user}`),
    ...objects.map((object) => `missing or changed: ${object}`),
  ];
}
