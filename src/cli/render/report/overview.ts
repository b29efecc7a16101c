import type { Report } from "../../../report/report.ts";
import { estimateCells } from "../estimate-cells.ts";
import { controllerText } from "../render-status.ts";
import type { Finding } from "./findings.ts";
import { type Content, type Html, html } from "./html.ts";
import { badge, grouped, moment, numberOf, section, STATES } from "./parts.ts";

/** What the report is about, before anything else. @param version of this program */
export function aboutList(report: Report, version: string): Html {
  const { names, now, server, serverVersion, status } = report;
  const facts: readonly (readonly [string, Content])[] = [
    ["API server", html`<code>${server}</code>, Kubernetes ${serverVersion}`],
    ["Made at", html`${moment(now)}, by the clock of the API server, with ksvm ${version}`],
    ["Covers", names.length === 0 ? "every CRD and every built-in resource that can be migrated" : names.join(", ")],
    ["Controller", controllerText(status.controller, now)],
  ];
  return html`<dl class="about">${facts.map(([term, value]) => html`<dt>${term}</dt><dd>${value}</dd>\n`)}</dl>`;
}

/** How many resources are in which state, and what the states mean. */
export function summarySection(report: Report, findings: readonly Finding[]): Html {
  const tiles = report.counts.map(({ resources, state }) => {
    const { meaning, tone, words } = STATES[state];
    return html`<li><strong>${grouped(resources)}</strong>${badge(words, tone)}<br><span class="muted">${meaning}</span></li>\n`;
  });
  return section(
    "summary",
    "Summary",
    html`<p>${summaryText(report, findings)}</p>
<ul class="tiles">
${tiles}</ul>
`,
  );
}

function summaryText({ planned, rows }: Report, findings: readonly Finding[]): string {
  const all = numberOf(rows.length, "resource");
  const attention =
    findings.length === 0
      ? "Nothing calls for attention."
      : `${numberOf(findings.length, "finding")} ${findings.length === 1 ? "calls" : "call"} for attention.`;
  if (planned.rows.length === 0) {
    return `${all}; none of them has a migration to do. ${attention}`;
  }
  const [, time] = estimateCells(planned.total);
  const work = `${grouped(planned.objects)} objects, ${time} one after the other`;
  const rest = planned.uncounted === 0 ? "" : `, and ${grouped(planned.uncounted)} whose objects cannot be counted`;
  return `${all}; ${grouped(planned.rows.length)} to migrate: ${work}${rest}. ${attention}`;
}
