import { readFileSync } from "node:fs";
import tap from "tap";
import { findingsPage } from "./findings-page.ts";
import { readRegressions } from "./regression.ts";

const regressions = readRegressions();

await tap.test("docs/simulation-findings.md lists every regression as it is", async (t) => {
  const page = readFileSync(new URL("../../../docs/simulation-findings.md", import.meta.url), "utf8");
  t.equal(page, findingsPage(regressions), "make simulate-findings writes it");
});

await tap.test("negative control: a regression that is missing changes the page", async (t) => {
  t.not(findingsPage(regressions.slice(1)), findingsPage(regressions));
});
