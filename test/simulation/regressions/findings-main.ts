import { writeFileSync } from "node:fs";
import { MUTATIONS_BY_AREA } from "../mutations.ts";
import { mutationsPage } from "../mutations/mutations-page.ts";
import { findingsPage } from "./findings-page.ts";
import { readRegressions } from "./regression.ts";

// make simulate-findings: writes docs/simulation-findings.md and docs/simulation-mutations.md.

const regressions = readRegressions();
const write = (page: string, text: string): void =>
  writeFileSync(new URL(`../../../docs/${page}`, import.meta.url), text);

write("simulation-findings.md", findingsPage(regressions));
write("simulation-mutations.md", mutationsPage(MUTATIONS_BY_AREA, regressions));
