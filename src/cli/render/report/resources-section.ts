import type { Outdated } from "../../../report/outdated.ts";
import type { ReportRow } from "../../../report/resource-rows.ts";
import { noteOf } from "../render-plan.ts";
import { describeVerification } from "../render-verification.ts";
import { type Content, type Html, html } from "./html.ts";
import { badge, type Column, grouped, moment, nameText, section, STATES, table, versions } from "./parts.ts";

const COLUMNS: readonly Column[] = [
  { title: "Resource" },
  { title: "State" },
  { title: "Storage version" },
  { title: "storedVersions" },
  { title: "Served versions" },
  { title: "Objects", kind: "number" },
  { title: "Verification", kind: "wide" },
  { title: "Notes" },
];

/** Every resource, CRDs first. */
export function resourcesSection(rows: readonly ReportRow[], rowIds: ReadonlyMap<string, string>): Html {
  const crds = rows.filter(({ entry }) => entry.type === "CustomResourceDefinition");
  const builtIns = rows.filter(({ entry }) => entry.type === "built-in");
  return section(
    "resources",
    "Every resource",
    html`<p>The storage version of a built-in resource is what its storageVersionHash stands for; its storedVersions are what its StorageState lists.</p>
${tableOf("Custom resources", crds, rowIds)}${tableOf("Built-in resources", builtIns, rowIds)}`,
  );
}

function tableOf(caption: string, rows: readonly ReportRow[], rowIds: ReadonlyMap<string, string>): Html {
  if (rows.length === 0) {
    return html``;
  }
  const shown = rows.map((row) => {
    const id = rowIds.get(row.entry.name);
    return { cells: cellsOf(row), ...(id === undefined ? {} : { id }) };
  });
  return table(`${caption} (${grouped(rows.length)})`, COLUMNS, { rows: shown });
}

function cellsOf(row: ReportRow): readonly Content[] {
  const { entry, state } = row;
  const { tone, words } = STATES[state];
  return [
    html`${nameText(entry.name)}<br><span class="muted">${entry.kind}</span>`,
    badge(words, tone),
    entry.storageVersion === undefined ? "-" : html`<code>${entry.storageVersion}</code>`,
    versions(entry.storedVersions),
    versions(entry.servedVersions),
    entry.objects === undefined ? "?" : grouped(entry.objects),
    verificationOf(row),
    noteOf(entry) ?? "",
  ];
}

/** What a verification is of that shows nothing of now. */
const OUTDATED: Readonly<Record<Outdated, string>> = {
  "storage version": "of another storage version: ",
  "unnamed CRD": "without uid and generation of the CRD: ",
  CRD: "of a CRD that was deleted since: ",
  spec: "of another generation of the CRD: ",
};

function verificationOf({ outdated, verification: told }: ReportRow): Content {
  if (told === undefined) {
    return "-";
  }
  const of = outdated === undefined ? "" : OUTDATED[outdated];
  return html`${of}${describeVerification(told.verification)} <span class="muted">(${moment(told.time)}, ${nameText(told.source)})</span>`;
}
