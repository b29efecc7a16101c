import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { endWithThisProcess } from "../../test/processes/watchdog.ts";

/** A script of this folder in a process of its own, so that its work is not that of who measures. It ends with its input. */
export class HelperProcess {
  readonly #child: ChildProcess;
  readonly #ended: Promise<unknown>;

  private constructor(child: ChildProcess) {
    this.#child = child;
    this.#ended = once(child, "close");
  }

  static start(script: string, args: readonly string[]): HelperProcess {
    const path = fileURLToPath(new URL(script, import.meta.url));
    const child = spawn(process.execPath, [path, ...args], { detached: true, stdio: ["pipe", "pipe", "inherit"] });
    endWithThisProcess(child);
    return new HelperProcess(child);
  }

  /** The first line that it prints. */
  async firstLine(): Promise<string> {
    const { stdout } = this.#child;
    if (stdout === null) throw new Error("the process has no output");
    for await (const line of createInterface({ input: stdout })) return line;
    throw new Error("the process ended without a line");
  }

  /** Ends it. @returns what it printed, where {@link firstLine} was not asked for */
  async end(): Promise<string> {
    const { stdin, stdout } = this.#child;
    const output = stdout === null || stdout.destroyed || stdout.readableEnded ? "" : text(stdout);
    stdin?.end();
    await this.#ended;
    return await output;
  }

  /** Waits until it ends by itself. @throws {Error} where its exit code is not 0 @returns what it printed */
  async output(): Promise<string> {
    const { stdout } = this.#child;
    const output = stdout === null ? "" : await text(stdout);
    await this.#ended;
    if (this.#child.exitCode !== 0) throw new Error(`the process ended with ${String(this.#child.exitCode)}`);
    return output;
  }

  kill(): void {
    this.#child.kill("SIGKILL");
  }
}
