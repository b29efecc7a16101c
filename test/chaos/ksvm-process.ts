import type { Test } from "tap";
import type { MigrationEvent, MigrationResult } from "../../src/migrator/types.ts";
import { type RunningProgram, startKsvm } from "../processes/program.ts";

/** What became of the objects, as `-o json` shows it. */
interface Counts {
  readonly done: number;
  readonly migrated: number;
}

/** One line that `ksvm migrate -o json` writes. */
export type KsvmLine =
  | Exclude<MigrationEvent, { readonly type: "progress" }>
  | { readonly type: "progress"; readonly counts: Counts }
  | ({ readonly type: "result" } & KsvmResult)
  | { readonly type: "error"; readonly code: string; readonly message: string };

export type KsvmResult = Omit<MigrationResult, "tally"> & { readonly counts?: Counts };

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
    return this.untilLineThat(({ type }) => types.includes(type));
  }

  /** Resolves once it wrote such a line, or ended without: then with `undefined`. */
  async untilLineThat(isWanted: (line: KsvmLine) => boolean): Promise<KsvmLine | undefined> {
    for (;;) {
      const found = this.#lines.find(isWanted);
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
export function resultOf({ lines }: KsvmEnd): KsvmResult | undefined {
  return lines.findLast((line) => line.type === "result");
}
