import { writeFileSync } from "node:fs";
import { findingsPage } from "./findings-page.ts";
import { readRegressions } from "./regression.ts";

// make simulate-findings: writes docs/simulation-findings.md.

writeFileSync(new URL("../../../docs/simulation-findings.md", import.meta.url), findingsPage(readRegressions()));
