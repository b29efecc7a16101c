import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import t from "tap";
import type { Report } from "../../src/report/report.ts";
import { renderReport } from "../../src/cli/render/report/render-report.ts";
import { reportOf } from "../../src/report/report.ts";
import { exampleFacts } from "../report/report-samples.ts";
import { hostileFacts, manyCrds } from "../report/report-extremes.ts";
import { findChromium, type Page, startChromium } from "./chromium.ts";
import { contrastOf, rgbOf } from "./wcag.ts";

const program = findChromium();
const skip = program === undefined && "no Chromium on PATH (apt-get install chromium, or set CHROMIUM)";
/** Where `make report-pictures` has the pictures of docs/report.md written. */
const PICTURES = process.env["REPORT_PICTURES"];

const folder = mkdtempSync(join(tmpdir(), "ksvm-report-"));
t.teardown(() => rmSync(folder, { recursive: true, force: true }));

/** Opens the page of a report, with the window of a small laptop. */
async function open(page: Page, report: Report): Promise<void> {
  const path = join(folder, "report.html");
  writeFileSync(path, renderReport(report, "0.1.0"));
  await page.send("Emulation.setDeviceMetricsOverride", {
    width: 1280,
    height: 800,
    deviceScaleFactor: 1,
    mobile: false,
  });
  await page.open(pathToFileURL(path).href);
}

/** What of the page can be seen and has text: its color, and the first color behind it. */
const TEXTS = `[...document.querySelectorAll("body *")].flatMap((element) => {
  const text = [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data.trim()).join("");
  if (text === "" || !element.checkVisibility()) return [];
  let behind = element;
  while (getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)" && behind.parentElement) behind = behind.parentElement;
  return [{ text, color: getComputedStyle(element).color, on: getComputedStyle(behind).backgroundColor }];
})`;

interface Shown {
  readonly text: string;
  readonly color: string;
  readonly on: string;
}

/** What has the focus: its words, whether it is in the window, and how wide its outline is. */
const FOCUSED = `(() => {
  const { activeElement: element } = document;
  const { bottom, top } = element.getBoundingClientRect();
  const { outlineStyle, outlineWidth } = getComputedStyle(element);
  return {
    name: element.tagName.toLowerCase() + " " + (element.getAttribute("aria-label") ?? element.textContent).trim(),
    isInWindow: bottom > 0 && top < innerHeight,
    outline: outlineStyle === "none" ? 0 : parseFloat(outlineWidth),
  };
})()`;

interface Focused {
  readonly name: string;
  readonly isInWindow: boolean;
  readonly outline: number;
}

await t.test("the page of a report in a browser", { skip }, async (t) => {
  const page = await startChromium(t, program ?? "");

  await t.test("it is shown without a complaint, and asks for nothing else", async (t) => {
    await open(page, reportOf(exampleFacts()));
    t.equal(await page.value("document.querySelectorAll('h1').length"), 1);
    t.equal(await page.value("document.scripts.length"), 0);
    t.equal(await page.value("getComputedStyle(document.body).margin"), "0px", "its own style is in force");
    t.same(page.complaints, []);
  });

  await t.test("negative control: what the policy of the page forbids is a complaint", async (t) => {
    const path = join(folder, "altered.html");
    const altered = renderReport(reportOf(exampleFacts()), "0.1.0").replace(
      "</main>",
      `<script>document.title = "ran"</script><p style="color:red">x</p><img src="https://example.com/x.png"></main>`,
    );
    writeFileSync(path, altered);
    await page.open(pathToFileURL(path).href);
    t.not(await page.value("document.title"), "ran");
    const found = page.complaints.splice(0).join("\n");
    t.match(found, /script/);
    t.match(found, /style/);
    t.match(found, /img|image/);
  });

  for (const scheme of ["light", "dark"] as const) {
    await t.test(`every text of it has the contrast of WCAG 2.2 AA, ${scheme}`, async (t) => {
      await page.emulate(scheme);
      await open(page, reportOf(exampleFacts()));
      const shown = await page.value<readonly Shown[]>(TEXTS);
      t.ok(shown.length > 100, `${shown.length} texts`);
      const pale = shown.filter(({ color, on }) => !(contrastOf(rgbOf(color), rgbOf(on)) >= 4.5));
      t.same(pale, []);
      const [body] = await page.value<readonly string[]>("[getComputedStyle(document.body).backgroundColor]");
      t.equal((rgbOf(body ?? "")[0] > 128 ? "light" : "dark") satisfies string, scheme);
      await picture(page, `report-${scheme}.png`);
    });
  }

  await t.test("the keyboard reaches everything that can be used, in order, and shows where it is", async (t) => {
    await page.emulate("light");
    await open(page, reportOf(exampleFacts()));
    const wanted = await page.value<number>("document.querySelectorAll('a[href], summary, [tabindex=\"0\"]').length");
    const visited: Focused[] = [];
    for (let count = 0; count < wanted; count++) {
      await page.press("Tab");
      visited.push(await page.value<Focused>(FOCUSED));
    }
    t.equal(new Set(visited.map(({ name }) => name)).size, wanted, "each once");
    t.equal(visited[0]?.name, "a Skip to the content");
    t.same(
      visited.filter(({ isInWindow, outline }) => !isInWindow || outline < 2),
      [],
      "in the window, with an outline",
    );
    t.match(
      visited.map(({ name }) => name).join("\n"),
      /summary 2 objects[^]*div Migrations to do[^]*div Custom resources/,
    );

    await open(page, reportOf(exampleFacts()));
    await page.press("Tab");
    await page.press("Enter");
    t.equal(await page.value("document.activeElement.id"), "main", "the first link skips the contents");
    await page.press("Tab");
    t.match(await page.value<Focused>(FOCUSED), { name: /^a orders\.shop/ });
    await page.press("Tab");
    await page.press("Enter");
    t.equal(await page.value("document.querySelector('details').open"), false, "a list closes and opens");
  });

  await t.test("names, roles and languages are there for a screen reader", async (t) => {
    const { nodes } = await page.send<{ readonly nodes: readonly AxNode[] }>("Accessibility.getFullAXTree");
    const named = (role: string): readonly string[] =>
      nodes.filter((node) => node.role?.value === role).map((node) => node.name?.value ?? "");
    t.same(await page.value("document.documentElement.lang"), "en");
    t.equal(named("main").length, 1);
    t.same(named("navigation"), ["Contents"]);
    t.ok(named("region").every((name) => name !== ""));
    t.ok(named("table").length >= 4 && named("table").every((name) => name !== ""));
    t.ok(named("rowheader").length >= 8);
  });

  await t.test("it reads without scripts, on a narrow screen, and in print", async (t) => {
    await page.send("Emulation.setScriptExecutionDisabled", { value: true });
    await open(page, reportOf(exampleFacts()));
    await page.send("Emulation.setDeviceMetricsOverride", {
      width: 360,
      height: 800,
      deviceScaleFactor: 1,
      mobile: true,
    });
    t.ok(await page.value("document.documentElement.scrollWidth <= innerWidth"), "tables scroll by themselves");
    await page.value("document.querySelectorAll('details').forEach((details) => { details.open = false; })");
    const isListShown = "document.querySelector('details li').checkVisibility({ contentVisibilityAuto: true })";
    t.notOk(await page.value(isListShown), "negative control: on a screen a closed list is not shown");
    await page.emulate("dark", "print");
    t.equal(await page.value("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)");
    t.equal(await page.value("getComputedStyle(document.querySelector('nav')).display"), "none");
    t.ok(await page.value(isListShown), "closed lists are printed");
    const { data } = await page.send<{ readonly data: string }>("Page.printToPDF", { preferCSSPageSize: true });
    t.ok(Buffer.from(data, "base64").subarray(0, 5).equals(Buffer.from("%PDF-")));
    await page.send("Emulation.setScriptExecutionDisabled", { value: false });
    await page.emulate("light");
    t.same(page.complaints, []);
  });

  await t.test("what a hostile cluster says is text", async (t) => {
    await open(page, reportOf(hostileFacts()));
    t.same(page.complaints, []);
    t.equal(await page.value("document.title.startsWith('Storage versions')"), true);
    t.equal(
      await page.value("document.querySelectorAll('script, img, iframe, form, object, embed, base, link, svg').length"),
      0,
    );
    t.equal(await page.value("document.querySelectorAll('style').length"), 1);
    t.same(
      await page.value(
        "[...document.querySelectorAll('*')].flatMap(({ attributes }) => [...attributes].map(({ name }) => name)).filter((name) => /^on|^style$|^src/.test(name))",
      ),
      [],
    );
    t.same(
      await page.value(
        "[...document.querySelectorAll('a')].map((a) => a.getAttribute('href')).filter((href) => !/^#[a-z0-9]+$/.test(href))",
      ),
      [],
    );
    t.match(await page.value("document.body.innerText"), /<script>alert\(1\)<\/script>/, "it can be read");
  });

  await t.test("a report of 1,000 CRDs opens at once", async (t) => {
    const before = performance.now();
    const text = renderReport(reportOf(manyCrds(1_000)), "0.1.0");
    const renderedMs = performance.now() - before;
    const opening = performance.now();
    await open(page, reportOf(manyCrds(1_000)));
    const openedMs = performance.now() - opening;
    t.equal(await page.value("document.querySelectorAll('#resources tbody tr').length"), 1_000);
    t.ok(text.length < 3_000_000);
    t.comment(
      `${Math.round(text.length / 1024)} KiB, made in ${Math.round(renderedMs)} ms, opened in ${Math.round(openedMs)} ms`,
    );
    t.same(page.complaints, []);
  });
});

interface AxNode {
  readonly role?: { readonly value: string };
  readonly name?: { readonly value: string };
}

async function picture(page: Page, name: string): Promise<void> {
  if (PICTURES !== undefined) {
    mkdirSync(PICTURES, { recursive: true });
    const { data } = await page.send<{ readonly data: string }>("Page.captureScreenshot", { format: "png" });
    writeFileSync(join(PICTURES, name), Buffer.from(data, "base64"));
  }
}
