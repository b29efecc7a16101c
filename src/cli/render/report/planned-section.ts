import { DEFAULT_SETTLE_MS } from "../../../apiservers/settle.ts";
import type { Estimate } from "../../../plan/estimate.ts";
import type { Planned } from "../../../report/report.ts";
import type { ReportRow } from "../../../report/resource-rows.ts";
import { estimateCells } from "../estimate-cells.ts";
import { type Content, type Html, html } from "./html.ts";
import { type Column, grouped, nameText, section, table, versions } from "./parts.ts";

const COLUMNS: readonly Column[] = [
  { title: "Resource" },
  { title: "What happens", kind: "wide" },
  { title: "Removable afterwards" },
  { title: "Objects", kind: "number" },
  { title: "Requests", kind: "number" },
  { title: "Time", kind: "number" },
];

/** What a migration would do, and how long it takes. */
export function plannedSection(planned: Planned): Html {
  if (planned.rows.length === 0) {
    return section("planned", "What would happen", html`<p>No resource has a migration to do that could start.</p>\n`);
  }
  const rows = planned.rows.map(({ entry }) => ({
    cells: [
      nameText(entry.name),
      stepsOf(entry),
      versions(entry.removableVersions),
      entry.objects === undefined ? "?" : grouped(entry.objects),
      ...workOf(entry.estimate),
    ],
  }));
  const foot = {
    cells: ["All of them", "one after the other", "", grouped(planned.objects), ...workOf(planned.total)],
  };
  const assumed = `Estimated for the default settings and an API server that rewrites 200 objects a second; ${DEFAULT_SETTLE_MS / 1_000} seconds of each are the wait for late writes.`;
  return section(
    "planned",
    "What would happen",
    html`<p>${assumed} No object changes in what a user sees of it, and storedVersions is pruned only if every object was rewritten.</p>
${table("Migrations to do", COLUMNS, { rows, foot })}`,
  );
}

/** The requests and the time. */
function workOf(estimate: Estimate | undefined): readonly Content[] {
  const [, time] = estimateCells(estimate);
  return [estimate === undefined ? "-" : grouped(estimate.requests), time];
}

function stepsOf({ storageVersion, storedVersions, type }: ReportRow["entry"]): Content {
  const version = storageVersion === undefined ? "the storage version" : html`<code>${storageVersion}</code>`;
  if (type === "built-in") {
    return html`rewrite every object in ${version}; nothing is frozen or pruned`;
  }
  return html`freeze the storage version at ${version}, rewrite every object in it, prune storedVersions from ${versions(storedVersions)} to ${version}, lift the freeze`;
}
