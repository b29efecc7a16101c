import type { Row } from "./arena.ts";

const BAR = 22;
const LABELS = 380;
const BARS = 380;

/** A bar for each row, as an SVG that is readable on light and on dark pages. */
export function barChart(rows: readonly Row[], column: string, title: string): string {
  const shown = rows.filter((row) => typeof row[column] === "number");
  const most = Math.max(...shown.map((row) => Number(row[column])));
  const bars = shown.map((row, index) => {
    const [y, value] = [40 + index * BAR, Number(row[column])];
    const width = Math.max(1, Math.round((value / most) * BARS));
    const name = [row["name"], row["round trip ms"] === undefined ? undefined : `${row["round trip ms"]} ms`]
      .filter((text) => text !== undefined)
      .join(", ");
    const color = name.startsWith("ksvm") || name.includes(": ksvm") ? "#3b82f6" : "#9ca3af";
    return [
      `<text x="${LABELS - 8}" y="${y + 14}" text-anchor="end">${escaped(name)}</text>`,
      `<rect x="${LABELS}" y="${y + 2}" width="${width}" height="${BAR - 6}" fill="${color}"/>`,
      `<text x="${LABELS + width + 6}" y="${y + 14}">${value.toLocaleString("en")}</text>`,
    ].join("");
  });
  const [width, height] = [LABELS + BARS + 80, 52 + shown.length * BAR];
  const style = "text{font:12px sans-serif;fill:#6b7280}";
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-label="${escaped(title)}"><style>${style}</style><text x="8" y="20" font-weight="bold">${escaped(title)}</text>${bars.join("")}</svg>\n`;
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}
