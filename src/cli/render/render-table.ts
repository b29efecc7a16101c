import { oneLine } from "./printable.ts";

/** One cell must not widen its column for thousands of rows; the other formats have the whole text. */
const MAX_CELL_LENGTH = 500;

/** Renders rows as kubectl does: columns padded to their widest cell, two spaces between, no borders. */
export function renderTable(rows: readonly (readonly string[])[]): string {
  const shown = rows.map((row) => row.map(cellOf));
  const widths: number[] = [];
  for (const row of shown) {
    row.forEach((cell, column) => (widths[column] = Math.max(widths[column] ?? 0, cell.length)));
  }
  const render = (row: readonly string[]): string =>
    row
      .map((cell, column) => (column === row.length - 1 ? cell : cell.padEnd(widths[column] ?? 0)))
      .join("   ")
      .trimEnd();
  return shown.map(render).join("\n");
}

function cellOf(text: string): string {
  const cell = oneLine(text.slice(0, MAX_CELL_LENGTH));
  return text.length > MAX_CELL_LENGTH ? `${cell}…` : cell;
}
