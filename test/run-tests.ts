import { globSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { dirname, join, matchesGlob, relative, resolve } from "node:path";

import { IS_LONG } from "./chaos/random.ts";
import { bundle } from "../tools/build.ts";
import { ensureBinaries } from "./control-plane/binaries.ts";
import { SharedControlPlanes } from "./control-plane/shared.ts";
import { needOf } from "./needs.ts";
import { type FileResult, TestFiles } from "./processes/test-files.ts";

// Runs test files: all but the long ones, one of the KINDS, "long", or the files named.

const ROOT = join(import.meta.dirname, "..");

/** The first pattern that matches a file is its kind. Everything else is a unit test, so that no folder is forgotten. */
const KINDS = {
  long: "test/{long,installed}/**",
  cluster: "test/{control-plane,contract,engine,integration,chaos,simulation/fidelity}/**",
  simulation: "test/simulation/**",
  docs: "test/docs/**",
  unit: "**",
} as const;

type Kind = keyof typeof KINDS;

function kindOf(file: string): Kind {
  const kinds = Object.keys(KINDS) as Kind[];
  return kinds.find((kind) => matchesGlob(file, KINDS[kind])) ?? "unit";
}

/** Needs a control plane, and mostly waits for it. */
const isCluster = (file: string): boolean => kindOf(file) === "cluster" || kindOf(file) === "long";

function chooseFiles(args: readonly string[]): readonly string[] {
  const [first = "", ...others] = args;
  const all = globSync("test/**/*.test.ts", { cwd: ROOT }).toSorted();
  if (first === "") return all.filter((file) => kindOf(file) !== "long");
  if (first in KINDS && others.length === 0) return all.filter((file) => kindOf(file) === first);
  return args.map((arg) => relative(ROOT, resolve(arg)));
}

/** How long each file took when it last ran, in seconds. */
const TIMES_FILE = join(ROOT, ".cache/test-times.json");

function readTimes(): Record<string, number> {
  try {
    return JSON.parse(readFileSync(TIMES_FILE, "utf8")) as Record<string, number>;
  } catch {
    return {};
  }
}

/** So that no long file begins when all others have ended. What has never run is judged by its size. */
function longestFirst(all: readonly string[]): readonly string[] {
  const times = readTimes();
  const expected = (file: string): number => times[file] ?? statSync(join(ROOT, file)).size / 1_000;
  return all.toSorted((a, b) => expected(b) - expected(a));
}

function writeTimes(results: readonly FileResult[]): void {
  // A file that failed, or was interrupted, may have ended early.
  const passed = results.filter(({ isPassed }) => isPassed).map(({ file, seconds }) => [file, Math.round(seconds)]);
  const times = { ...readTimes(), ...Object.fromEntries(passed) };
  mkdirSync(dirname(TIMES_FILE), { recursive: true });
  writeFileSync(TIMES_FILE, JSON.stringify(times));
}

if (process.env["TEST_SEED"] !== undefined) console.log(`seed: TEST_SEED=${process.env["TEST_SEED"]}`);

const shared = new SharedControlPlanes();
const files = new TestFiles(
  ROOT,
  {
    // Tests start many processes, and compiling takes a third of what it costs to start one.
    NODE_COMPILE_CACHE: join(ROOT, ".cache/node-compile-cache"),
    ...process.env,
  },
  shared,
);

/** Six files at a time on two cores: they wait for API servers, and what computes fills those waits. */
const CLUSTER_JOBS = 3 * availableParallelism();
const TIMEOUT_S = IS_LONG ? 3_600 : 900;

async function runAll(chosen: readonly string[]): Promise<readonly FileResult[]> {
  const cluster = chosen.filter(isCluster);
  const others = chosen.filter((file) => !isCluster(file));
  if (cluster.length > 0) {
    // Built here, so that minutes of compiling do not count against a test's timeout.
    await ensureBinaries(["etcd", "kubectl", "kube-apiserver", "kube-controller-manager"]);
  }
  await bundle();
  const clusterJobs = IS_LONG ? 1 : Math.min(CLUSTER_JOBS, cluster.length);
  const both = await Promise.all([
    files.run(longestFirst(cluster), { jobs: clusterJobs, timeoutSeconds: TIMEOUT_S }),
    files.run(longestFirst(others), {
      jobs: availableParallelism(),
      timeoutSeconds: TIMEOUT_S,
      niceness: cluster.length > 0 ? 19 : 0,
    }),
  ]);
  return both.flat();
}

const SLOWEST = 20;

function printSummary(results: readonly FileResult[], seconds: number): void {
  const slowest = results.toSorted((a, b) => b.seconds - a.seconds).slice(0, SLOWEST);
  console.log(
    `\nslowest:\n${slowest.map(({ file, seconds: s }) => `  ${s.toFixed(1).padStart(6)} s  ${file}\n`).join("")}`,
  );
  for (const kind of Object.keys(KINDS) as Kind[]) {
    const some = results.filter(({ file }) => kindOf(file) === kind);
    if (some.length === 0) continue;
    const cpu = some.reduce((total, { cpuSeconds }) => total + cpuSeconds, 0);
    const tests = some.reduce((total, { passed, failed, skipped }) => total + passed + failed + skipped, 0);
    console.log(`${kind}: ${some.length} files, ${tests} tests, ${cpu.toFixed(0)} s of CPU time`);
  }
  console.log(`${shared.started} shared control planes; ${seconds.toFixed(0)} s in all`);
}

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => {
    // Without a file there is nothing to wait for; a second signal does not wait.
    if (files.isInterrupted || !files.interrupt(signal)) process.exit(130);
  });
}

async function main(): Promise<number> {
  const startedAt = performance.now();
  const chosen = chooseFiles(process.argv.slice(2));
  const skipped = chosen.filter((file) => needOf(file) !== undefined);
  for (const file of skipped) console.log(`SKIP ${file}: ${needOf(file)}`);
  let results: readonly FileResult[] = [];
  try {
    results = await runAll(chosen.filter((file) => !skipped.includes(file)));
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
  } finally {
    files.end();
    await shared.stop();
  }
  writeTimes(results);
  printSummary(results, (performance.now() - startedAt) / 1_000);
  if (files.failures.length > 0) console.log(`failed:\n${files.failures.map((name) => `  ${name}\n`).join("")}`);
  const sum = (count: (result: FileResult) => number): number => results.reduce((total, one) => total + count(one), 0);
  const passed = sum((one) => one.passed);
  const failed = passed + sum((one) => one.failed) === 0 ? 1 : sum((one) => one.failed);
  const left = skipped.length + sum((one) => one.skipped);
  console.log(`${passed} passed, ${failed} failed${left === 0 ? "" : `, ${left} skipped`}`);
  return failed === 0 ? 0 : 1;
}

const exitCode = await main();
process.exitCode = files.isInterrupted ? 130 : exitCode;
