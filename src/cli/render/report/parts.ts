import type { ReportState } from "../../../report/resource-rows.ts";
import { cutText } from "../../../cut-text.ts";
import { type Content, type Html, html } from "./html.ts";

/** What Kubernetes allows as a name has at most 253 characters; a file may say anything. */
const MAX_NAME_LENGTH = 600;

/** What a color stands for; the words beside it always say the same. */
export type Tone = "bad" | "warn" | "busy" | "good" | "plain";

/** A few words on a ground of their own. */
export function badge(words: string, tone: Tone): Html {
  // A class name is one of the words above.
  return html`<span class="badge ${tone}">${words}</span>`;
}

/** How the states of a resource are shown. */
export const STATES: Readonly<
  Record<ReportState, { readonly words: string; readonly tone: Tone; readonly meaning: string }>
> = {
  failed: {
    words: "migration failed",
    tone: "bad",
    meaning: "the newest migration failed, and its work is still to be done",
  },
  blocked: { words: "blocked", tone: "bad", meaning: "a migration cannot start" },
  unproven: {
    words: "not proven",
    tone: "warn",
    meaning: "the newest verification found objects that were not current, or shows nothing of some",
  },
  active: { words: "in progress", tone: "busy", meaning: "a migration is at work" },
  waiting: { words: "waiting", tone: "busy", meaning: "a migration is in the queue, waits, or is suspended" },
  stale: {
    words: "needs migration",
    tone: "warn",
    meaning: "objects may be stored in another version than they are to be",
  },
  unknown: { words: "not known", tone: "plain", meaning: "nothing shows in which version the objects are stored" },
  clean: {
    words: "clean",
    tone: "good",
    meaning: "everything is in the storage version by storedVersions, or by a StorageState",
  },
  verified: {
    words: "verified",
    tone: "good",
    meaning: "clean, and by a verification every object is current",
  },
};

/** A column of a table; `number` is aligned to the right, `wide` is for sentences. */
export interface Column {
  readonly title: string;
  readonly kind?: "number" | "wide";
}

/** A row of a table: its first cell names it. */
export interface Row {
  /** Made by this program: what links lead to. */
  readonly id?: string;
  readonly cells: readonly Content[];
}

/** A table that scrolls by itself where it is wider than the page, with the keyboard as well. */
export function table(
  caption: string,
  columns: readonly Column[],
  { foot, rows }: { readonly rows: readonly Row[]; readonly foot?: Row },
): Html {
  const cellsOf = ({ cells, id }: Row): Html => {
    const shown = cells.map((cell, index) => cellOf(cell, columns[index]?.kind, index));
    return id === undefined ? html`<tr>${shown}</tr>\n` : html`<tr id="${id}">${shown}</tr>\n`;
  };
  const heads = columns.map(({ kind, title }) =>
    kind === "number" ? html`<th scope="col" class="number">${title}</th>` : html`<th scope="col">${title}</th>`,
  );
  const tfoot = foot === undefined ? "" : html`<tfoot>${cellsOf(foot)}</tfoot>`;
  return html`<div class="scroll" role="region" tabindex="0" aria-label="${caption}"><table>
<caption>${caption}</caption>
<thead><tr>${heads}</tr></thead>
<tbody>
${rows.map(cellsOf)}</tbody>${tfoot}
</table></div>
`;
}

function cellOf(content: Content, kind: Column["kind"], index: number): Html {
  if (index === 0) {
    return html`<th scope="row">${content}</th>`;
  }
  return kind === undefined ? html`<td>${content}</td>` : html`<td class="${kind}">${content}</td>`;
}

/** A time to the second, in UTC; a text that is no time as it is. */
export function moment(time: string | number | undefined): Content {
  const ms = typeof time === "number" ? time : Date.parse(time ?? "");
  if (time === undefined || !(Math.abs(ms) <= 8.64e15)) {
    return time ?? "-";
  }
  const text = new Date(ms).toISOString();
  return html`<time datetime="${text}">${text.slice(0, 10)} ${text.slice(11, 19)} UTC</time>`;
}

/** So many of something, as people write numbers. */
export function grouped(count: number): string {
  return count.toLocaleString("en-US");
}

/** `1 resource`, `12 resources`. */
export function numberOf(count: number, thing: string): string {
  return `${grouped(count)} ${thing}${count === 1 ? "" : "s"}`;
}

/** A name, which may be broken after a dot or a slash. */
export function nameText(text: string): Content {
  return cutText(text, MAX_NAME_LENGTH)
    .split(/(?<=[./])/)
    .map((part, index) => (index === 0 ? part : html`<wbr>${part}`));
}

/** Versions as code, with commas between them. */
export function versions(names: readonly string[] | undefined): Content {
  if (names === undefined || names.length === 0) {
    return "-";
  }
  return names.map((name, index) => html`${index === 0 ? "" : ", "}<code>${name}</code>`);
}

/** A part of the page with a heading. @param id made by this program */
export function section(id: string, title: string, content: Content): Html {
  return html`<section id="${id}" aria-labelledby="${id}-title">
<h2 id="${id}-title">${title}</h2>
${content}</section>
`;
}
