import { readFileSync } from "node:fs";
import { dirname, relative } from "node:path";

// make simulate-coverage: how much of each folder of src/ the simulation alone reaches, from the summary that c8 writes.

interface Count {
  total: number;
  covered: number;
}

type FileSummary = Readonly<Record<"lines" | "branches" | "functions", Readonly<Count>>>;
type FolderSummary = Record<keyof FileSummary, Count>;

const MEASURES = ["lines", "branches", "functions"] as const;
const root = new URL("../../", import.meta.url).pathname;
const summary = JSON.parse(readFileSync(process.argv[2] ?? "", "utf8")) as Readonly<Record<string, FileSummary>>;
const folders = new Map<string, FolderSummary>();

for (const [file, counts] of Object.entries(summary)) {
  if (file === "total") continue;
  for (const folder of [dirname(relative(root, file)), "all of src"]) add(folder, counts);
}

function add(folder: string, counts: FileSummary): void {
  const sums = folders.get(folder) ?? {
    lines: { total: 0, covered: 0 },
    branches: { total: 0, covered: 0 },
    functions: { total: 0, covered: 0 },
  };
  for (const measure of MEASURES) {
    sums[measure].total += counts[measure].total;
    sums[measure].covered += counts[measure].covered;
  }
  folders.set(folder, sums);
}

function percent({ total, covered }: Count): string {
  return total === 0 ? "" : `${((covered / total) * 100).toFixed(1)} %`;
}

console.log(`| folder | ${MEASURES.join(" | ")} |\n| --- | --- | --- | --- |`);
for (const [folder, sums] of [...folders].toSorted(([a], [b]) => (a < b ? -1 : 1))) {
  console.log(`| \`${folder}\` | ${MEASURES.map((measure) => percent(sums[measure])).join(" | ")} |`);
}
