import type { Finding } from "./findings.ts";
import { type Html, html } from "./html.ts";
import { grouped, numberOf, section } from "./parts.ts";

/** So many reasons are shown at once; the others open. */
const SHOWN_AT_ONCE = 5;

/** What failed, cannot start, was not proven or is not known, and why. */
export function findingsSection(findings: readonly Finding[], rowIds: ReadonlyMap<string, string>): Html {
  const items = findings.map(
    ({ about, more = 0, reasons = [], what }) =>
      html`<li>${nameOf(about, rowIds)}: ${what}${reasonsOf(reasons, more)}</li>\n`,
  );
  const list = html`<ul class="findings">
${items}</ul>
`;
  return section("attention", "What calls for attention", items.length === 0 ? html`<p>Nothing.</p>\n` : list);
}

function nameOf(about: string, rowIds: ReadonlyMap<string, string>): Html {
  const id = rowIds.get(about);
  return id === undefined ? html`<strong>${about}</strong>` : html`<a href="#${id}"><strong>${about}</strong></a>`;
}

function reasonsOf(reasons: readonly string[], more: number): Html {
  if (reasons.length === 0) {
    return html``;
  }
  const rest = more === 0 ? [] : [html`<li>and ${grouped(more)} more, which are not named</li>`];
  const list = html`<ul>${reasons.map((reason) => html`<li>${reason}</li>\n`)}${rest}</ul>`;
  const title = html`<summary>${numberOf(reasons.length + more, "object")}</summary>`;
  return reasons.length <= SHOWN_AT_ONCE
    ? html`<details open>${title}${list}</details>`
    : html`<details>${title}${list}</details>`;
}
