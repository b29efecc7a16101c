import type { GuardChange, PruneGuardStatus } from "../../prune-guard/manage-prune-guard.ts";
import type { PruneGuardMode } from "../../prune-guard/prune-policies.ts";
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

/** What an update meets that removes a version. */
const MODES: Readonly<Record<PruneGuardMode, string>> = {
  warn: "an update that removes a version from status.storedVersions is warned about and audited",
  deny: "an update that removes a version from status.storedVersions is denied",
};

function stateOf({ allowedUsers, mode, state }: PruneGuardStatus): string {
  if (mode === undefined || state === "off") {
    return "off: nothing watches over status.storedVersions; ksvm guard enable puts the guard in force";
  }
  if (state !== "changed") {
    return `${state}: ${MODES[state]}`;
  }
  const flags = [`--mode=${mode}`, ...allowedUsers.map((user) => `--allow-user=${shellWord(user)}`)];
  return `changed: an object of the guard in mode ${mode} is not as ksvm writes it; ksvm guard enable ${flags.join(" ")} puts it right`;
}

/** As a POSIX shell takes it for one word: the names come from a policy that others can write. */
function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** The text of the guard's state, without a line break at its end. */
export function renderGuard(status: PruneGuardStatus, format: ResultFormat): string {
  return renderResult(documentOf("GuardStatus", status), format, () => [
    [stateOf(status), ...detailsOf(status)].join("\n"),
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
    ...objects.map((object) => `missing, changed, or left over: ${object}`),
  ];
}
