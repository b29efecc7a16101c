import type { CheckEntry } from "../../plan/check-types.ts";
import type { UpgradeStep } from "../../upgrade/upgrade-steps.ts";
import type { RunFormat } from "../flags/run-flags.ts";
import { documentOf } from "./document.ts";
import { oneLine } from "./printable.ts";

/**
 * What `ksvm migrate -f FILE --dry-run` shows of one CRD. Field names of the entry and the steps are those of `-o
 * json`.
 */
export interface UpgradeView {
  readonly entry: CheckEntry;
  readonly steps: readonly UpgradeStep[];
}

/** The text of the steps to a file, without a line break at its end. */
export function renderUpgrade({ entry, steps }: UpgradeView, format: RunFormat): string {
  const { name, notes, reason, source, verdict } = entry;
  if (format === "json") {
    const line = { resource: name, type: "upgrade-plan", source, verdict, reason, notes, steps };
    return JSON.stringify(documentOf("RunEvent", line));
  }
  const isOn = verdict !== "refused" && verdict !== "data-loss" && verdict !== "unknown";
  return [
    `${name}: ${isOn ? reason : describeRefusal(entry)}`,
    ...steps.flatMap(({ back, does, kind, why }, index) => [
      `  ${index + 1}. ${kind}: ${does}`,
      `     why: ${why}`,
      `     way back: ${back}`,
    ]),
    ...notes.map((note) => `  note: ${note}`),
  ]
    .map(oneLine)
    .join("\n");
}

/** Why a file is not reached, and what helps. */
export function describeRefusal({ apiServer, reason, steps, verdict }: CheckEntry): string {
  const said = apiServer === undefined ? "" : `; the API server says: ${apiServer}`;
  const help = steps.length === 0 ? "" : `; what helps: ${steps.map((step, at) => `(${at + 1}) ${step}`).join(", ")}`;
  return `${verdict}: ${reason}${said}${help}`;
}
