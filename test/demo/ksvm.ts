import { join } from "node:path";

import { KSVM, RunningProgram } from "../processes/program.ts";

const ROOT = join(import.meta.dirname, "..", "..");

/** How long ksvm may take to end cleanly, in milliseconds. */
const INTERRUPT_DEADLINE_MS = 20_000;

export interface KsvmOptions {
  readonly kubeconfig: string;
  /** Ends it as Ctrl-C does. */
  readonly signal: AbortSignal;
  /** Whether the output is returned instead of shown as it comes. @default false */
  readonly capture?: boolean;
}

/** Runs the command line as a user would; its progress bar shows on a terminal. */
export async function runKsvm(
  args: readonly string[],
  options: KsvmOptions,
): Promise<{ readonly code: number | null; readonly output: string }> {
  const { kubeconfig, signal, capture = false } = options;
  signal.throwIfAborted();
  // Detached, Ctrl-C in the terminal reaches the demo only, which hands it on once: a second one would end ksvm at once.
  const program = new RunningProgram(process.execPath, [KSVM, ...args, "--kubeconfig", kubeconfig], {
    cwd: ROOT,
    detached: true,
    stdout: capture ? "pipe" : "inherit",
    stderr: "inherit",
  });
  let deadline: NodeJS.Timeout | undefined;
  const interrupt = (): void => {
    program.signal("SIGINT");
    deadline = setTimeout(() => program.signal("SIGKILL"), INTERRUPT_DEADLINE_MS);
  };
  signal.addEventListener("abort", interrupt, { once: true });
  try {
    const { code, stdout } = await program.ended;
    return { code, output: stdout };
  } finally {
    clearTimeout(deadline);
    signal.removeEventListener("abort", interrupt);
  }
}
