/** The colors of a report, by the names of their CSS variables. */
export interface Palette {
  readonly page: string;
  /** Behind table heads and tiles. */
  readonly surface: string;
  readonly line: string;
  readonly text: string;
  readonly muted: string;
  readonly link: string;
  /** Around what has the keyboard's focus. */
  readonly focus: string;
  readonly "bad-text": string;
  readonly "bad-surface": string;
  readonly "warn-text": string;
  readonly "warn-surface": string;
  readonly "busy-text": string;
  readonly "busy-surface": string;
  readonly "good-text": string;
  readonly "good-surface": string;
  readonly "plain-text": string;
  readonly "plain-surface": string;
}

/** On white, for print too. */
export const LIGHT: Palette = {
  page: "#ffffff",
  surface: "#f4f6f8",
  line: "#c7cdd4",
  text: "#191c20",
  muted: "#525a63",
  link: "#0b57b0",
  focus: "#0b57b0",
  "bad-text": "#8c1010",
  "bad-surface": "#fde8e8",
  "warn-text": "#664100",
  "warn-surface": "#fff0cf",
  "busy-text": "#0b4a94",
  "busy-surface": "#e2eefd",
  "good-text": "#115229",
  "good-surface": "#e0f5e6",
  "plain-text": "#424a53",
  "plain-surface": "#eceef1",
};

/** On black. */
export const DARK: Palette = {
  page: "#14171a",
  surface: "#1d2125",
  line: "#3d454d",
  text: "#e6e8ea",
  muted: "#a9b1ba",
  link: "#8ab8ff",
  focus: "#8ab8ff",
  "bad-text": "#ffb3b0",
  "bad-surface": "#4a1414",
  "warn-text": "#ffd58a",
  "warn-surface": "#443005",
  "busy-text": "#b0d2ff",
  "busy-surface": "#12345e",
  "good-text": "#9fe2b4",
  "good-surface": "#0f3d20",
  "plain-text": "#c9ced4",
  "plain-surface": "#2c3238",
};

/** Which color is written on which. WCAG 2.2 wants a contrast of 4.5 (1.4.3, level AA). */
export const TEXT_ON: readonly (readonly [text: keyof Palette, on: keyof Palette])[] = [
  ...(["text", "muted", "link"] as const).flatMap((text) => [[text, "page"] as const, [text, "surface"] as const]),
  ["bad-text", "bad-surface"],
  ["warn-text", "warn-surface"],
  ["busy-text", "busy-surface"],
  ["good-text", "good-surface"],
  ["plain-text", "plain-surface"],
];

/** Which color marks something on which. WCAG 2.2 wants a contrast of 3 (1.4.11, level AA). */
export const MARK_ON: readonly (readonly [mark: keyof Palette, on: keyof Palette])[] = [
  ["focus", "page"],
  ["focus", "surface"],
];
