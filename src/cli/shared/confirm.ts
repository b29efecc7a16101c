import { once } from "node:events";
import { createInterface } from "node:readline/promises";
import { KsvmError } from "../../errors.ts";
import { toggle } from "../flags/kinds.ts";
import type { CliIo } from "../render/io.ts";

/** `--yes`, for every command that asks. */
export const YES_FLAG = { yes: toggle({ short: "y", help: "do not ask for confirmation" }) };

/**
 * Asks a question on the terminal.
 * @param toDo what is to be confirmed, as in "Cannot …"
 * @throws {KsvmError} Usage without a terminal: there is nobody to ask, and no answer is no yes.
 * @throws the signal's reason where it was aborted.
 */
export async function confirm({ stdin, stderr, signal }: CliIo, question: string, toDo: string): Promise<boolean> {
  if (stdin?.isTTY !== true) {
    throw new KsvmError(
      "Usage",
      `Cannot ${toDo} without a confirmation, and there is no terminal to ask on: pass --yes`,
    );
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
