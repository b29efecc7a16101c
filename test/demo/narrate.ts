import { styleText } from "node:util";

type Style = Parameters<typeof styleText>[0];

/** A claim of the demo that turned out to be wrong. */
export class CheckFailed extends Error {
  override readonly name = "CheckFailed";
}

let steps = 0;
let checks = 0;

/** Begins the next numbered step. */
export function step(title: string): void {
  steps++;
  write(`\n${style("bold", `${steps}. ${title}`)}\n`);
}

/** Says something about the step. */
export function say(text: string): void {
  write(text === "" ? "\n" : `   ${text}\n`);
}

/** Shows what a program said, such as an API server or ksvm, word by word. */
export function quote(text: string): void {
  for (const line of text.trimEnd().split("\n")) write(`   ${style("dim", "|")} ${line}\n`);
}

/** Shows how far a long step is; only on a terminal, where the line can be replaced. */
export function progress(text: string): void {
  if (process.stdout.isTTY) write(`\r\u001B[2K${text === "" ? "" : `   ${text}`}`);
}

/**
 * Says that a claim is true.
 * @param found what was seen instead, shown where the claim is false
 * @throws {CheckFailed} where it is false
 */
export function check(claim: string, isTrue: boolean, found: unknown): asserts isTrue {
  if (!isTrue) {
    write(`   ${style("red", "✗")} ${claim}\n`);
    throw new CheckFailed(`${claim}: not so, found ${typeof found === "string" ? found : JSON.stringify(found)}`);
  }
  checks++;
  write(`   ${style("green", "✓")} ${claim}\n`);
}

/** How many claims were found to be true so far. */
export function checkCount(): number {
  return checks;
}

/** `5,000`. */
export function formatCount(count: number): string {
  return count.toLocaleString("en-US");
}

function style(format: Style, text: string): string {
  return styleText(format, text, { stream: process.stdout });
}

function write(text: string): void {
  process.stdout.write(text);
}
