import { spawn } from "node:child_process";
import { join } from "node:path";

import { endWithThisProcess } from "../control-plane/watchdog.ts";

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
  const child = spawn(process.execPath, ["src/cli/main.ts", ...args, "--kubeconfig", kubeconfig], {
    cwd: ROOT,
    detached: true,
    stdio: ["ignore", capture ? "pipe" : "inherit", "inherit"],
  });
  // Detached, it would also outlive a demo that was killed, and go on asking for an API server that is gone.
  endWithThisProcess(child);
  let deadline: NodeJS.Timeout | undefined;
  const interrupt = (): void => {
    child.kill("SIGINT");
    deadline = setTimeout(() => child.kill("SIGKILL"), INTERRUPT_DEADLINE_MS);
  };
  signal.addEventListener("abort", interrupt, { once: true });
  let output = "";
  child.stdout?.setEncoding("utf8").on("data", (text: string) => (output += text));
  try {
    const code = await new Promise<number | null>((resolve, reject) => child.on("error", reject).on("close", resolve));
    return { code, output };
  } finally {
    clearTimeout(deadline);
    signal.removeEventListener("abort", interrupt);
  }
}
