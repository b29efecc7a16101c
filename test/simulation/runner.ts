import { fork } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { aimNamed } from "./aims.ts";
import { planOf } from "./plan-of.ts";
import type { Plan } from "./plan.ts";
import type { Sabotage } from "./world/world.ts";
import { simulate } from "./simulate.ts";

// Plays seeds and plans: here, or in worker processes, each of which runs main.ts as well.

/** What is to be played. */
export interface Play {
  readonly name: string;
  readonly plan: Plan;
}

/** What a play showed. */
export interface Played {
  readonly name: string;
  readonly violations: readonly string[];
  readonly trace: readonly string[];
  /** SHA-256 of the trace: two plays with the same one were the same. */
  readonly digest: string;
  readonly requests: number;
  /** Simulated milliseconds. */
  readonly elapsedMs: number;
}

/** A worker that says nothing for so long hangs, in milliseconds. */
const HANG_MS = 120_000;

/** @param sabotage it is played in the worlds of its aim */
export function playOfSeed(seed: number, sabotage?: Sabotage): Play {
  return { name: `SEED=${seed}`, plan: planOf(seed, sabotage && aimNamed(sabotage.aim)) };
}

/** The plans of plans.jsonl: each once broke something. */
export function savedPlans(): readonly Play[] {
  const text = readFileSync(new URL("plans.jsonl", import.meta.url), "utf8");
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => {
      const { name, plan } = JSON.parse(line) as Play;
      return { name: `PLAN=${name}`, plan };
    });
}

/** Plays in this process. A simulation that throws is broken too: its error stands for a violation. */
export async function play({ name, plan }: Play, sabotage?: Sabotage): Promise<Played> {
  try {
    const { violations, trace, requests, elapsedMs } = await simulate(plan, sabotage);
    const digest = createHash("sha256").update(trace.join("\n")).digest("hex");
    return { name, violations, trace, digest, requests, elapsedMs };
  } catch (error) {
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    return { name, violations: [`error: ${text}`], trace: [], digest: "", requests: 0, elapsedMs: 0 };
  }
}

/** Plays seeds in worker processes. One whose worker dies or hangs is broken. */
export async function playSeeds(
  seeds: Iterable<number>,
  options: PlayOptions & { readonly workers: number },
): Promise<void> {
  const { signal, workers } = options;
  const left = seeds[Symbol.iterator]();
  const lane = async (): Promise<void> => {
    while (!signal.aborted && (await playInWorker(left, options)) === "lost");
  };
  await Promise.all(Array.from({ length: workers }, lane));
}

interface PlayOptions {
  readonly sabotage: Sabotage | undefined;
  readonly signal: AbortSignal;
  /** Told of each; its trace is left out. */
  readonly onPlayed: (played: Played) => void;
}

/** @returns whether the worker was lost, so that another one has to go on */
function playInWorker(seeds: Iterator<number>, { onPlayed, sabotage, signal }: PlayOptions): Promise<"lost" | "done"> {
  const child = fork(new URL("worker.ts", import.meta.url), sabotage === undefined ? [] : [sabotage.name], {
    // A simulated cluster makes hundreds of megabytes of objects that live for a moment: so half of the time for garbage goes.
    execArgv: ["--min-semi-space-size=64", "--max-semi-space-size=64"],
    signal,
    killSignal: "SIGKILL",
  });
  let current: number | undefined;
  let timer: NodeJS.Timeout | undefined;
  const next = (): void => {
    const { value, done } = seeds.next();
    current = done === true ? undefined : value;
    clearTimeout(timer);
    if (current === undefined) return child.disconnect();
    timer = setTimeout(() => child.kill("SIGKILL"), HANG_MS);
    child.send(current);
  };
  return new Promise((resolve) => {
    child.on("message", (played: Played) => {
      onPlayed(played);
      next();
    });
    // An abort is told as an error; the end follows.
    child.on("error", () => undefined);
    child.on("exit", (code, by) => {
      clearTimeout(timer);
      if (current === undefined || signal.aborted) return resolve("done");
      const lost = `lost: the process that played it ended with ${by ?? code}`;
      onPlayed({ name: `SEED=${current}`, violations: [lost], trace: [], digest: "", requests: 0, elapsedMs: 0 });
      resolve("lost");
    });
    next();
  });
}
