import { createHash } from "node:crypto";
import tap from "tap";
import { renderReport } from "../../../../src/cli/render/report/render-report.ts";
import { reportOf } from "../../../../src/report/report.ts";
import { HOSTILE, hostileFacts, manyCrds } from "../../../report/report-extremes.ts";
import { exampleFacts, factsOf } from "../../../report/report-samples.ts";

const VERSION = "0.1.0";
const page = renderReport(reportOf(exampleFacts()), VERSION);
const hostile = renderReport(reportOf(hostileFacts()), VERSION);

/** The names of the elements that a browser opens for the page. Its style sheet has no `<`. */
function elementsOf(html: string): ReadonlySet<string> {
  return new Set([...html.matchAll(/<([a-z!][a-z0-9]*)/gi)].map(([, name]) => name ?? ""));
}

const ELEMENTS = new Set(
  (
    "!doctype html head meta title style body a header h1 dl dt dd code time nav ul li main section h2 p strong span br wbr " +
    "details summary div table caption thead tr th tbody td tfoot footer"
  ).split(" "),
);

await tap.test("renderReport() has every resource with its versions, objects and state", async (t) => {
  for (const { entry } of reportOf(exampleFacts()).rows) {
    const row = page.split("\n").find((line) => line.startsWith("<tr id=") && line.includes(`>${entry.kind}</span>`));
    t.ok(row, entry.name);
  }
  const row = page.split("\n").find((line) => line.startsWith("<tr id=") && line.includes("<wbr>pki."));
  t.match(row, /needs migration.*<code>v2<\/code>.*<code>v1<\/code>, <code>v2<\/code>.*>1,240</);
  t.match(page, /8 resources; 3 to migrate: 14,240 objects, ~297s one after the other/);
  t.match(page, /12 objects current on 2 of 2 API servers/);
  t.match(page, /shop\/legacy-1: spec\.size: Invalid value: 0/);
});

await tap.test("renderReport() is one document that loads, runs and sends nothing", async (t) => {
  const [, policy = ""] = /http-equiv="Content-Security-Policy" content="([^"]*)"/.exec(page) ?? [];
  const [, style = ""] = /<style>([^]*?)<\/style>/.exec(page) ?? [];
  const hash = createHash("sha256").update(style).digest("base64");
  t.equal(
    policy.replaceAll("&#39;", "'"),
    `default-src 'none'; style-src 'sha256-${hash}'; base-uri 'none'; form-action 'none'`,
  );
  t.ok(page.indexOf("Content-Security-Policy") < page.indexOf("<style>"), "in force before anything else");
  t.match(page, /^<!doctype html>\n<html lang="en">/);
  t.notMatch(page, /<script|<img|<link|<iframe|\son[a-z]+=|\sstyle=|\ssrc=/);
  t.same(
    [...page.matchAll(/href="([^"]*)"/g)].filter(([, href = ""]) => !/^#[a-z0-9]+$/.test(href)),
    [],
    "its links lead to its own parts",
  );
});

await tap.test("renderReport() makes text of everything that a cluster or a file says", async (t) => {
  for (const text of [page, hostile]) {
    t.same(
      [...elementsOf(text)].filter((name) => !ELEMENTS.has(name)),
      [],
    );
  }
  t.ok(hostile.includes("&lt;script&gt;alert(1)&lt;/script&gt;"), "it can be read");
  for (const text of HOSTILE.filter((one) => /[<>"']/.test(one))) t.notOk(hostile.includes(text), text);
  t.notMatch(hostile.replaceAll("\n", ""), /[\p{Cc}\u202E\u2028]/u);
  const ids = [...hostile.matchAll(/ id="([^"]*)"/g)].map(([, id = ""]) => id);
  t.same(ids, [...new Set(ids)]);
  t.ok(ids.every((id) => /^[a-z0-9-]+$/.test(id)));
});

await tap.test("negative control: an element that no template has is found", async (t) => {
  const altered = page.replace("8 resources", "<script>8 resources");
  t.ok([...elementsOf(altered)].some((name) => !ELEMENTS.has(name)));
});

await tap.test("renderReport() opens and closes each element in turn", async (t) => {
  for (const text of [page, hostile, renderReport(reportOf(factsOf([])), VERSION)]) {
    const open: string[] = [];
    const body = text.replace(/<style>[^]*?<\/style>/, "").replaceAll(/<(?:!doctype|meta|br|wbr)\b[^>]*>/g, "");
    for (const [, slash, name = ""] of body.matchAll(/<(\/?)([a-z0-9]+)[^>]*>/g)) {
      if (slash === "") open.push(name);
      else t.equal(open.pop(), name);
    }
    t.same(open, []);
  }
});

await tap.test("renderReport() of a cluster without anything says so", async (t) => {
  const empty = renderReport(reportOf(factsOf([])), VERSION);
  t.match(empty, /0 resources; none of them has a migration to do\. Nothing calls for attention\./);
  t.match(empty, /no StorageVersionMigration, no run and no freeze/);
});

await tap.test("renderReport() of 1,000 CRDs has less than 1.5 KiB for each", async (t) => {
  const bytes = Buffer.byteLength(renderReport(reportOf(manyCrds(1_000)), VERSION));
  t.comment(`${Math.round(bytes / 1_024)} KiB`);
  t.ok(bytes < 1_000 * 1_536);
});
