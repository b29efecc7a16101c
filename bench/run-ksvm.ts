import { spawn } from "node:child_process";
import type { Readable } from "node:stream";
import { fileURLToPath } from "node:url";

import { endWithThisProcess } from "../test/processes/watchdog.ts";

const MAIN = fileURLToPath(new URL("../src/cli/main.ts", import.meta.url));
const REPORT_USAGE = new URL("report-usage.mjs", import.meta.url).href;

/** What a process used in its whole life. */
export interface Usage {
  readonly cpuSeconds: number;
  readonly peakMegabytes: number;
}

export interface KsvmRun {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly seconds: number;
  /** Missing where it was killed. */
  readonly usage: Usage | undefined;
}

export interface RunKsvmOptions {
  readonly kubeconfig: string;
  readonly signal: AbortSignal;
  /** @default src/cli/main.ts, whose types Node strips as it loads it */
  readonly program?: string;
  /** For Node. @default none */
  readonly nodeFlags?: readonly string[];
}

/** Runs ksvm as a process of its own, as a user does. An abort kills it. */
export async function runKsvm(args: readonly string[], options: RunKsvmOptions): Promise<KsvmRun> {
  const { kubeconfig, signal, program = MAIN, nodeFlags = [] } = options;
  signal.throwIfAborted();
  const startedAt = performance.now();
  // Detached, Ctrl-C in the terminal reaches the benchmark only; and ksvm ends if that is killed.
  const child = spawn(
    process.execPath,
    [...nodeFlags, "--import", REPORT_USAGE, program, ...args, "--kubeconfig", kubeconfig],
    {
      detached: true,
      stdio: ["ignore", "pipe", "pipe", "pipe"],
    },
  );
  endWithThisProcess(child);
  const kill = (): void => void child.kill("SIGKILL");
  signal.addEventListener("abort", kill, { once: true });
  const texts = [1, 2, 3].map((fd) => textOf(child.stdio[fd] as Readable));
  try {
    const code = await new Promise<number | null>((resolve, reject) => child.on("error", reject).on("close", resolve));
    const seconds = (performance.now() - startedAt) / 1_000;
    const [stdout = "", stderr = "", usage = ""] = await Promise.all(texts);
    return { code, stdout, stderr, seconds, usage: usage === "" ? undefined : (JSON.parse(usage) as Usage) };
  } finally {
    signal.removeEventListener("abort", kill);
  }
}

async function textOf(stream: Readable): Promise<string> {
  let text = "";
  for await (const chunk of stream.setEncoding("utf8")) text += String(chunk);
  return text;
}
