import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { Test } from "tap";
import type { MigrationEvent } from "../../src/migrator/events.ts";
import type { MigrationResult } from "../../src/migrator/result.ts";
import { endWithThisProcess } from "../control-plane/watchdog.ts";

/** One line that `ksvm migrate -o json` writes. */
export type KsvmLine =
  | MigrationEvent
  | ({ readonly type: "result" } & MigrationResult)
  | { readonly type: "error"; readonly code: string; readonly message: string };

/** How a process ended; the code is `null` where a signal ended it. */
export interface KsvmEnd {
  readonly code: number | null;
  readonly stderr: string;
  readonly lines: readonly KsvmLine[];
}

const MAIN = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));

/** A `ksvm migrate` in a process of its own. It ends with the test. */
export class KsvmProcess {
  readonly ended: Promise<KsvmEnd>;
  readonly #child: ReturnType<typeof spawn>;
  readonly #lines: KsvmLine[] = [];
  readonly #waiting = new Set<() => void>();

  constructor(t: Test, kubeconfig: string, args: readonly string[]) {
    const child = spawn(process.execPath, [MAIN, "migrate", "-o", "json", "--kubeconfig", kubeconfig, ...args], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.#child = child;
    endWithThisProcess(child);
    let stderr = "";
    let rest = "";
    child.stderr.on("data", (chunk: Buffer) => (stderr += chunk.toString()));
    child.stdout.on("data", (chunk: Buffer) => {
      const parts = (rest + chunk.toString()).split("\n");
      rest = parts.pop() ?? "";
      this.#lines.push(...parts.map((line) => JSON.parse(line) as KsvmLine));
      this.#wake();
    });
    this.ended = new Promise((resolve) => {
      child.on("close", (code) => {
        resolve({ code, stderr, lines: this.#lines });
        this.#wake();
      });
    });
    t.teardown(() => this.kill());
  }

  /** What it has written so far. */
  get lines(): readonly KsvmLine[] {
    return this.#lines;
  }

  /** Ends it at once, as kill -9 does. */
  async kill(): Promise<KsvmEnd> {
    this.#child.kill("SIGKILL");
    return this.ended;
  }

  /** Ends it as Ctrl-C does. */
  interrupt(): void {
    this.#child.kill("SIGINT");
  }

  /** Resolves once it wrote a line of one of these types, or ended without: then with `undefined`. */
  async untilLine(...types: readonly KsvmLine["type"][]): Promise<KsvmLine | undefined> {
    for (;;) {
      const found = this.#lines.find(({ type }) => types.includes(type));
      if (found !== undefined || this.#child.exitCode !== null || this.#child.signalCode !== null) return found;
      await new Promise<void>((resolve) => this.#waiting.add(resolve));
    }
  }

  #wake(): void {
    for (const resolve of this.#waiting) resolve();
    this.#waiting.clear();
  }
}

/** The code of the error that ended it, such as `FreezeLifted`. */
export function errorCodeOf({ lines }: KsvmEnd): string | undefined {
  return lines.findLast((line) => line.type === "error")?.code;
}

/** The result of a run that no error ended. */
export function resultOf({ lines }: KsvmEnd): MigrationResult | undefined {
  return lines.findLast((line) => line.type === "result");
}
