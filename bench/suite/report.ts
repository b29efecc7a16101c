import type { Row } from "./arena.ts";

/** The folder of the results. */
export const RESULTS = new URL("../results/", import.meta.url);

/** What bench/results/<part>.json holds. */
export interface PartResult {
  readonly part: string;
  readonly title: string;
  readonly about: string;
  readonly date: string;
  readonly kubernetes: string;
  readonly ksvm: string;
  readonly node: string;
  readonly machine: string;
  /** The load average over one minute before it began: what else the machine was doing. */
  readonly loadBefore: number;
  readonly minutes: number;
  readonly rows: readonly Row[];
}

/** The table as text. */
export function renderResult({ title, about, rows, ...rest }: PartResult): string {
  const columns = columnsOf(rows);
  const lines = [columns, ...rows.map((row) => columns.map((column) => textOf(row[column])))];
  const widths = columns.map((_, index) => Math.max(...lines.map((line) => (line[index] ?? "").length)));
  const table = lines.map((line) =>
    line
      .map((cell, index) => cell.padEnd(widths[index] ?? 0))
      .join("  ")
      .trimEnd(),
  );
  return [title, about, machineLine(rest), "", ...table, ""].join("\n");
}

/** The table as Markdown. */
export function markdownOf({ about, rows, ...rest }: PartResult): string {
  const columns = columnsOf(rows);
  const body = rows.map((row) => line(columns.map((column) => textOf(row[column]))));
  return [about, "", line(columns), line(columns.map(() => "---")), ...body, "", machineLine(rest)].join("\n");
}

function line(cells: readonly string[]): string {
  return `| ${cells.map((cell) => cell.replaceAll("|", String.raw`\|`)).join(" | ")} |`;
}

function machineLine({
  date,
  kubernetes,
  ksvm,
  node,
  machine,
  loadBefore,
  minutes,
}: Omit<PartResult, "title" | "about" | "rows">): string {
  return `Measured on ${date.slice(0, 10)} in ${minutes} minutes: ksvm ${ksvm}, Kubernetes ${kubernetes}, Node ${node}, ${machine}, load before ${loadBefore.toFixed(1)}.`;
}

function columnsOf(rows: readonly Row[]): readonly string[] {
  return [...new Set(rows.flatMap((row) => Object.keys(row).filter((key) => row[key] !== undefined)))];
}

function textOf(value: Row[string]): string {
  if (typeof value === "number") return value.toLocaleString("en", { maximumFractionDigits: 2 });
  if (typeof value === "boolean") return value ? "yes" : "no";
  return value ?? "";
}
