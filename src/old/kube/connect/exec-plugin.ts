import { type ChildProcess, spawn } from "node:child_process";
import type { KubeEnvironment } from "./cluster-config.ts";
import {
  type ExecCluster,
  type ExecCredential,
  type ExecSpec,
  execInfo,
  parseExecCredential,
  problemOf,
} from "./exec-credential.ts";

/** What an exec plugin is run with. */
export interface ExecPluginOptions {
  readonly environment: KubeEnvironment;
  /** Told to the plugin where `provideClusterInfo` is set. */
  readonly cluster: ExecCluster;
  /** Ends the plugin. */
  readonly signal: AbortSignal;
  /** @default {@link PLUGIN_TIMEOUT_MS}, or {@link PROMPT_TIMEOUT_MS} where it may ask the user */
  readonly timeoutMs?: number;
}

/** How long a plugin may take that asks the user nothing, in milliseconds. */
const PLUGIN_TIMEOUT_MS = 60_000;
/** How long a user may take to answer a plugin, in milliseconds. */
const PROMPT_TIMEOUT_MS = 300_000;
/** Between the signal that a plugin can heed and the one that it cannot, in milliseconds. */
const KILL_AFTER_MS = 2_000;
/** Many times the largest token and certificate. */
const MAX_OUTPUT_BYTES = 1_048_576;
const MAX_STDERR_BYTES = 2_000;

/**
 * Runs the exec plugin of a kubeconfig as client-go does. On a terminal it has stdin (unless `interactiveMode` is `Never`)
 * and stderr; elsewhere the end of what it wrote to stderr is part of the error.
 * @throws {Error} where it cannot be run, fails, takes too long, or prints no credentials.
 */
export async function runExecPlugin(spec: ExecSpec, options: ExecPluginOptions): Promise<ExecCredential> {
  const { isTerminal } = options.environment;
  const problem = problemOf(spec, isTerminal);
  if (problem !== undefined) {
    throw new Error(problem);
  }
  const interactive = isTerminal && spec.interactiveMode !== "Never";
  const output = await outputOf(spec, interactive, options);
  try {
    return parseExecCredential(output, spec);
  } catch (error) {
    throw new Error(`exec plugin "${spec.command}": ${error instanceof Error ? error.message : String(error)}`, {
      cause: error,
    });
  }
}

function start(spec: ExecSpec, interactive: boolean, { environment, cluster }: ExecPluginOptions): ChildProcess {
  const added = Object.fromEntries((spec.env ?? []).map(({ name, value }) => [name, value]));
  return spawn(spec.command ?? "", spec.args ?? [], {
    env: { ...environment.variables, ...added, KUBERNETES_EXEC_INFO: execInfo(spec, interactive, cluster) },
    stdio: [interactive ? "inherit" : "ignore", "pipe", environment.isTerminal ? "inherit" : "pipe"],
  });
}

async function outputOf(spec: ExecSpec, interactive: boolean, options: ExecPluginOptions): Promise<string> {
  const { signal, timeoutMs = interactive ? PROMPT_TIMEOUT_MS : PLUGIN_TIMEOUT_MS } = options;
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const name = `exec plugin "${spec.command}"`;
  if (signal.aborted) {
    throw new Error(`${name} was ended before it started`);
  }
  const child = start(spec, interactive, options);
  const stdout: Buffer[] = [];
  let bytes = 0;
  let stderr = "";
  const giveUp = (error: Error): void => {
    reject(error);
    end(child);
  };
  const timeUp = (): void => giveUp(new Error(`${name} did not end within ${timeoutMs / 1_000} s`));
  const timer = setTimeout(timeUp, timeoutMs);
  const onAbort = (): void => giveUp(new Error(`${name} was ended`));
  signal.addEventListener("abort", onAbort, { once: true });
  child.stdout?.on("data", (chunk: Buffer) => {
    stdout.push(chunk);
    bytes += chunk.length;
    if (bytes > MAX_OUTPUT_BYTES) {
      giveUp(new Error(`${name} printed more than ${MAX_OUTPUT_BYTES} bytes`));
    }
  });
  child.stderr?.on("data", (chunk: Buffer) => (stderr = (stderr + chunk.toString()).slice(-MAX_STDERR_BYTES)));
  child.on("error", (error) => reject(startError(error, spec)));
  child.on("close", (code, killedBy) => {
    if (code === 0) {
      resolve(Buffer.concat(stdout).toString());
    } else {
      const ending = code === null ? `was ended by ${killedBy}` : `failed with exit code ${code}`;
      reject(new Error(`${name} ${ending}${stderr.trim() === "" ? "" : `: ${stderr.trim()}`}`));
    }
  });
  return promise.finally(() => {
    clearTimeout(timer);
    signal.removeEventListener("abort", onAbort);
  });
}

function startError(error: Error, { command, installHint = "" }: ExecSpec): Error {
  const isMissing = "code" in error && error.code === "ENOENT";
  const text = isMissing ? `executable "${command}" not found (ENOENT)` : `cannot run "${command}": ${error.message}`;
  return new Error(`exec plugin: ${text}${isMissing && installHint !== "" ? `. ${installHint}` : ""}`, {
    cause: error,
  });
}

/** Neither the plugin nor a process that it left behind keeps this process from ending. */
function end(child: ChildProcess): void {
  child.kill("SIGTERM");
  child.stdout?.destroy();
  child.stderr?.destroy();
  child.unref();
  const timer = setTimeout(() => child.kill("SIGKILL"), KILL_AFTER_MS).unref();
  child.once("exit", () => clearTimeout(timer));
}
