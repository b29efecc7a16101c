import * as fc from "fast-check";
import tap from "tap";
import { html } from "../../../../src/cli/render/report/html.ts";
import { HOSTILE } from "../../../report/report-extremes.ts";

const ENTITIES: Readonly<Record<string, string>> = { amp: "&", lt: "<", gt: ">", quot: '"', "#39": "'" };

function readBack(escaped: string): string {
  return escaped.replaceAll(/&([a-z]+|#39);/g, (_, name: string) => ENTITIES[name] ?? "?");
}

await tap.test("html`` escapes every text, and nothing else", async (t) => {
  const inner = html`<b>${"a & b"}</b>`;
  t.equal(
    html`<p title="${'"x"'}">${inner}${["<", inner]}${undefined}${7}</p>`.toString(),
    '<p title="&quot;x&quot;"><b>a &amp; b</b>&lt;<b>a &amp; b</b>7</p>',
  );
});

await tap.test("html`` takes no object of another kind for HTML", async (t) => {
  const forged = { toString: () => "<script>", text: "<script>" } as unknown as string;
  t.throws(() => html`${forged}`);
});

function shown(text: string): string {
  return html`${text}`.toString();
}

function holds(text: string): boolean {
  const escaped = shown(text);
  return !/[<>"'\p{Cc}\u202E]/u.test(escaped) && escaped.isWellFormed();
}

await tap.test("html`` makes text of any text, in an element and in an attribute", async (t) => {
  t.same(
    HOSTILE.filter((text) => !holds(text)),
    [],
  );
  fc.assert(fc.property(fc.string({ unit: "binary" }), holds));
  fc.assert(fc.property(fc.string({ unit: "grapheme-ascii" }), (text) => readBack(shown(text)) === text));
});

await tap.test("html`` shows what would reorder a line, and cuts what has megabytes", async (t) => {
  t.equal(shown("a\u202Eb\u0000c\nd"), "a\\u202eb\\u0000c\\u000ad");
  const long = shown("<".repeat(1_000_000));
  t.ok(long.length < 20_000);
  t.match(long, /… \(cut: 1000000 characters\)$/);
});
