import type { Span } from "../test/terminal/screen.ts";

/** What a terminal shows for some milliseconds. */
export interface Frame {
  readonly lines: readonly (readonly Span[])[];
  readonly ms: number;
}

const CHARACTER = 8.4;
const LINE = 19;
const PADDING = 16;
const CLASSES: Readonly<Record<string, string>> = { "1": "b", "2": "d", "32": "g", "33": "y", "31": "r" };

/** A recording as an SVG that plays again and again: all frames below each other, of which one is seen at a time. */
export function recordingOf(
  frames: readonly Frame[],
  { columns, title }: { readonly columns: number; readonly title: string },
): string {
  const rows = Math.max(...frames.map(({ lines }) => lines.length));
  const width = Math.ceil(columns * CHARACTER + 2 * PADDING);
  const height = rows * LINE + 2 * PADDING;
  const totalMs = frames.reduce((sum, { ms }) => sum + ms, 0);
  let atMs = 0;
  const steps = frames.map(({ ms }, index) => {
    const step = `${((atMs / totalMs) * 100).toFixed(3)}%{transform:translateY(${-index * height}px)}`;
    atMs += ms;
    return step;
  });
  const texts = frames.flatMap(({ lines }, frame) =>
    lines.flatMap((line, row) => textOf(line, PADDING, frame * height + PADDING + (row + 0.75) * LINE)),
  );
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img" aria-label="${escaped(title)}">
<style>
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d6dbe1;white-space:pre}
.b{font-weight:bold}.d{fill:#8b949e}.g{fill:#56d364}.y{fill:#e3b341}.r{fill:#ff7b72}
#strip{animation:play ${(totalMs / 1_000).toFixed(1)}s step-end infinite}
@keyframes play{${steps.join("")}}
@media (prefers-reduced-motion:reduce){#strip{animation:none;transform:translateY(${-(frames.length - 1) * height}px)}}
</style>
<rect width="${width}" height="${height}" rx="8" fill="#0d1117"/>
<g id="strip">
${texts.join("\n")}
</g>
</svg>
`;
}

function textOf(line: readonly Span[], x: number, y: number): readonly string[] {
  const spans = line.map(({ text, style }) => {
    const names = style
      .split(";")
      .flatMap((one) => CLASSES[one] ?? [])
      .join(" ");
    return names === "" ? escaped(text) : `<tspan class="${names}">${escaped(text)}</tspan>`;
  });
  return spans.length === 0 ? [] : [`<text x="${x}" y="${y}">${spans.join("")}</text>`];
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
}
