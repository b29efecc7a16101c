import type { Row } from "./arena.ts";

/** What a part measured, where and when. */
export interface PartResult {
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
