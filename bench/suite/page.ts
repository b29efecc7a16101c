// Writes the tables and the plots of bench/results/ into docs/performance.md: node bench/suite/page.ts
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { barChart } from "./bar-chart.ts";
import { PARTS } from "./parts.ts";
import { markdownOf, type PartResult, RESULTS } from "./report.ts";

const PAGE = new URL("../../docs/performance.md", import.meta.url);
/** What a plot shows of a part. */
const PLOTS: Readonly<Record<string, string>> = { throughput: "objects/s", distance: "objects/s", politeness: "p99" };

let page = readFileSync(PAGE, "utf8");
for (const { name, title } of PARTS) {
  const file = new URL(`${name}.json`, RESULTS);
  if (!existsSync(file)) continue;
  const result = JSON.parse(readFileSync(file, "utf8")) as PartResult;
  const parts = [markdownOf(result)];
  const column = PLOTS[name];
  if (column !== undefined) {
    writeFileSync(
      new URL(`../../docs/images/bench-${name}.svg`, import.meta.url),
      barChart(result.rows, column, `${title}: ${column}`),
    );
    parts.unshift(`![${title}: ${column}](images/bench-${name}.svg)`);
  }
  const pattern = new RegExp(`(<!-- bench:${name} -->\n).*?(<!-- end -->)`, "s");
  if (!pattern.test(page)) throw new Error(`docs/performance.md has no place for "${name}"`);
  page = page.replace(pattern, (_, begin: string, end: string) => `${begin}\n${parts.join("\n\n")}\n\n${end}`);
}
writeFileSync(PAGE, page);
