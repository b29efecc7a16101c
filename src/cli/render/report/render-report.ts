import { createHash } from "node:crypto";
import type { Report } from "../../../report/report.ts";
import { doneSection } from "./done-section.ts";
import { findingsOf } from "./findings.ts";
import { findingsSection } from "./findings-section.ts";
import { type Html, html, styleElement } from "./html.ts";
import { aboutList, summarySection } from "./overview.ts";
import { grouped } from "./parts.ts";
import { plannedSection } from "./planned-section.ts";
import { resourcesSection } from "./resources-section.ts";
import { STYLE_SHEET } from "./style-sheet.ts";

const STYLE_HASH = createHash("sha256").update(STYLE_SHEET).digest("base64");
/** Nothing is loaded, run or sent: the page has no script, and its only style is the one with this hash. */
const POLICY = `default-src 'none'; style-src 'sha256-${STYLE_HASH}'; base-uri 'none'; form-action 'none'`;

/**
 * The page of a report: one HTML document that needs nothing else, with a line break at its end.
 * @param version of this program
 */
export function renderReport(report: Report, version: string): string {
  const findings = findingsOf(report);
  const rowIds = new Map(report.rows.map(({ entry }, index) => [entry.name, `r${index + 1}`] as const));
  const title = `Storage versions: ${report.server}`;
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>${title}</title>
${styleElement(STYLE_SHEET)}
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header>
<h1>Storage versions of Kubernetes resources</h1>
${aboutList(report, version)}
</header>
<nav aria-label="Contents">
<ul>
${links(report, findings.length)}</ul>
</nav>
<main id="main" tabindex="-1">
${summarySection(report, findings)}${findingsSection(findings, rowIds)}${plannedSection(report.planned)}${doneSection(report)}${resourcesSection(report.rows, rowIds)}</main>
<footer>
<p>Made by ksvm report, which only reads. A cluster changes: this is what it was at the time above.</p>
</footer>
</body>
</html>
`.toString();
}

function links({ planned, rows }: Report, findings: number): readonly Html[] {
  const targets = [
    ["summary", "Summary"],
    ["attention", `What calls for attention (${grouped(findings)})`],
    ["planned", `What would happen (${grouped(planned.rows.length)})`],
    ["done", "What was done and proven"],
    ["resources", `Every resource (${grouped(rows.length)})`],
  ] as const;
  return targets.map(([id, text]) => html`<li><a href="#${id}">${text}</a></li>\n`);
}
