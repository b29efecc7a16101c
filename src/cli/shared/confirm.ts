import { once } from "node:events";
import { createInterface } from "node:readline/promises";
import type { CliIo } from "../render/io.ts";

/**
 * Asks a question on the terminal; without a terminal the answer is yes.
 * @throws the signal's reason where it was aborted.
 */
export async function confirm({ stdin, stderr, signal }: CliIo, question: string): Promise<boolean> {
  if (stdin?.isTTY !== true) {
    return true;
  }
  // Not in raw mode, so that Ctrl-C stays a signal.
  const terminal = createInterface({ input: stdin, output: stderr, terminal: false });
  try {
    const closed = once(terminal, "close").then(() => "");
    const answer = await Promise.race([terminal.question(`${question} [y/N] `, { signal }), closed]);
    return ["y", "yes"].includes(answer.trim().toLowerCase());
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  } finally {
    terminal.close();
  }
}
