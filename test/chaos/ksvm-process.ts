import type { Test } from "tap";
import type { MigrationEvent } from "../../src/old/migrator/events.ts";
import type { MigrationResult } from "../../src/old/migrator/result.ts";
import { type RunningProgram, startKsvm } from "../processes/program.ts";

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

/** A `ksvm migrate` in a process of its own. It ends with the test. */
export class KsvmProcess {
  readonly ended: Promise<KsvmEnd>;
  readonly #program: RunningProgram;
  readonly #lines: KsvmLine[] = [];
  readonly #waiting = new Set<() => void>();
  #read = 0;

  constructor(t: Test, kubeconfig: string, args: readonly string[]) {
    this.#program = startKsvm(t, ["migrate", "-o", "json", "--kubeconfig", kubeconfig, ...args]);
    this.#program.onOutput(() => this.#onOutput());
    this.ended = this.#program.ended.then(({ code, stderr }) => ({ code, stderr, lines: this.#lines }));
  }

  /** What it has written so far. */
  get lines(): readonly KsvmLine[] {
    return this.#lines;
  }

  /** Ends it at once, as kill -9 does. */
  async kill(): Promise<KsvmEnd> {
    this.#program.signal("SIGKILL");
    return this.ended;
  }

  /** Ends it as Ctrl-C does. */
  interrupt(): void {
    this.#program.signal("SIGINT");
  }

  /** Resolves once it wrote a line of one of these types, or ended without: then with `undefined`. */
  async untilLine(...types: readonly KsvmLine["type"][]): Promise<KsvmLine | undefined> {
    for (;;) {
      const found = this.#lines.find(({ type }) => types.includes(type));
      if (found !== undefined || !this.#program.isRunning) return found;
      await new Promise<void>((resolve) => this.#waiting.add(resolve));
    }
  }

  #onOutput(): void {
    const text = this.#program.stdout;
    const end = text.lastIndexOf("\n") + 1;
    if (end > this.#read) {
      const lines = text.slice(this.#read, end - 1).split("\n");
      this.#lines.push(...lines.map((line) => JSON.parse(line) as KsvmLine));
      this.#read = end;
    }
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
