import { type ChildProcess, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { globSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join, matchesGlob, relative, resolve } from "node:path";

import { Parser, type Result } from "tap-parser";
import { stringify } from "yaml";

import { ensureBinaries } from "./control-plane/binaries.ts";
import { ensureCertManager } from "./installed/cert-manager.ts";
import { ensureHelm, HELM_VERSIONS } from "./installed/helm.ts";
import { ensureKine } from "./installed/kine.ts";
import { ensureKrew } from "./installed/krew.ts";
import { ensurePrometheus } from "./installed/prometheus.ts";
import { ensureKustomize, KUBECTL_VERSIONS } from "./control-plane/kustomize.ts";
import { endWithThisProcess } from "./processes/watchdog.ts";
import { needOf } from "./needs.ts";

const ROOT = join(import.meta.dirname, "..");
const CLUSTER = "test/{control-plane,contract,integration,chaos,simulation/fidelity}/**/*.test.ts";

/** What is installed beside programs of others, which take minutes to build: `make test-install`. */
const INSTALLED = "test/installed/**/*.test.ts";

/** They need no cluster, and use all cores for a minute or more: `make check` does without them. */
const LONG =
  "test/{simulation/{main,simulated-runs,mutations/{find-mutations,stated-seeds},regressions/regressions,world/ended-worlds},webhook/floods}.test.ts";

/** Named tests: those directly in a file. What they nest is part of them. */
interface Counts {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

const children = new Set<ChildProcess>();
let interrupted = false;

/** The tests of one run of tap, as its TAP stream tells them. */
class Recorder {
  readonly parser = new Parser();
  readonly #counts = { passed: 0, failed: 0, skipped: 0 };
  readonly #missing: Set<string>;
  /** Of the file that is being read: {@link Parser} tells of a file's tests before it tells of the file. */
  #inFile = { tests: 0, failed: 0 };

  constructor(files: readonly string[]) {
    this.#missing = new Set(files);
    this.parser.on("child", (file) => this.#onFile(file));
    this.parser.on("assert", (result) => this.#onFileEnd(result));
  }

  /** What was counted, once the stream has ended. A file of which nothing is said counts as one failed test. */
  counts(): Counts {
    for (const file of this.#missing) console.log(`FAIL ${file}: no result`);
    return { ...this.#counts, failed: this.#counts.failed + this.#missing.size };
  }

  #onFile(file: Parser): void {
    file.on("assert", ({ ok, skip, todo }) => {
      const outcome = skip !== false || todo !== false ? "skipped" : ok ? "passed" : "failed";
      this.#counts[outcome]++;
      this.#inFile.tests++;
      this.#inFile.failed += outcome === "failed" ? 1 : 0;
    });
    this.#showFailures(file);
  }

  /** Shows what failed at the innermost level, where the diagnostics are. */
  #showFailures(parser: Parser): void {
    let shown = false;
    parser.on("child", (child) => {
      shown = false;
      child.on("assert", ({ ok, todo }: Result) => (shown ||= !ok && todo === false));
      this.#showFailures(child);
    });
    parser.on("assert", ({ ok, todo, diag, fullname }) => {
      if (!ok && todo === false && !shown) {
        console.log(`\nnot ok ${fullname}\n${indented(stringify(diag ?? {}))}`);
      }
      shown = false;
    });
  }

  /** A file that broke down outside of its tests (a crash, a failed import), or has none, counts as a failed test. */
  #onFileEnd({ diag, name: title, ok, skip, time }: Result): void {
    const { tests, failed } = this.#inFile;
    this.#inFile = { tests: 0, failed: 0 };
    // tap titles a file that never ended "timeout!" and names it in the diagnostics.
    const name = !this.#missing.has(title) && typeof diag?.expired === "string" ? diag.expired : title;
    this.#missing.delete(name);
    const passed = ok && skip === false && tests > 0;
    if (!passed && failed === 0) {
      this.#counts.failed++;
      const how = tests === 0 ? "no test ran" : "it broke down outside of its tests";
      console.log(`\nnot ok ${name}: ${how}\n${indented(stringify(diag ?? {}))}`);
    }
    console.log(`${passed ? "PASS" : "FAIL"} ${name} (${tests} tests, ${((time ?? 0) / 1_000).toFixed(1)} s)`);
  }
}

function indented(text: string): string {
  return text.replaceAll(/^/gm, "  ").trimEnd();
}

async function runTap(files: readonly string[], options: readonly string[]): Promise<Counts> {
  const args = ["node_modules/.bin/tap", "--reporter=tap", ...options, ...files];
  // Tests start thousands of processes, and compiling takes a third of what it costs to start one.
  const env = { NODE_COMPILE_CACHE: join(ROOT, ".cache/node-compile-cache"), ...process.env };
  // In a process group of its own: tap itself does not end the tests that it started.
  const child = spawn(process.execPath, args, { cwd: ROOT, env, detached: true, stdio: ["ignore", "pipe", "inherit"] });
  endWithThisProcess(child, { withGroup: true });
  children.add(child);
  const recorder = new Recorder(files);
  child.stdout.pipe(recorder.parser);
  const code = await new Promise<number | null>((done, fail) => child.on("error", fail).on("close", done));
  children.delete(child);
  const counts = recorder.counts();
  if (code === 0 || counts.failed > 0) return counts;
  console.log(`FAIL tap ended with code ${code} although no test failed`);
  return { ...counts, failed: 1 };
}

const isCluster = (file: string): boolean => matchesGlob(file, CLUSTER);
const isLong = (file: string): boolean => matchesGlob(file, LONG);
const isInstalled = (file: string): boolean => matchesGlob(file, INSTALLED);
/** Everything else is a unit test, so that no directory is forgotten. */
const isUnit = (file: string): boolean => !isCluster(file) && !isLong(file) && !isInstalled(file);

function find(isWanted: (file: string) => boolean): readonly string[] {
  return globSync("test/**/*.test.ts", { cwd: ROOT }).filter(isWanted).toSorted();
}

/** In an order that spreads files of one kind. Side by side, those that load the machine go first, and those that mostly wait last. */
function spread(files: readonly string[]): readonly string[] {
  return files.toSorted((a, b) => (digestOf(a) < digestOf(b) ? -1 : 1));
}

function digestOf(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

interface Chosen {
  readonly unit: readonly string[];
  readonly long: readonly string[];
  readonly cluster: readonly string[];
}

/** The files to run: all but `installed`, `unit`, `cluster`, `installed`, or those named. */
function chooseFiles(args: readonly string[]): Chosen {
  if (args.length === 0) return { unit: find(isUnit), long: find(isLong), cluster: spread(find(isCluster)) };
  if (args.length === 1 && args[0] === "unit") return { unit: find(isUnit), long: [], cluster: [] };
  if (args.length === 1 && args[0] === "cluster") return { unit: [], long: [], cluster: spread(find(isCluster)) };
  if (args.length === 1 && args[0] === "installed") return { unit: [], long: [], cluster: find(isInstalled) };
  const named = args.map((arg) => relative(ROOT, resolve(arg)));
  return {
    unit: named.filter(isUnit),
    long: named.filter(isLong),
    cluster: named.filter((file) => isCluster(file) || isInstalled(file)),
  };
}

function sum(all: readonly Counts[]): Counts {
  const total = { passed: 0, failed: 0, skipped: 0 };
  for (const { passed, failed, skipped } of all) {
    total.passed += passed;
    total.failed += failed;
    total.skipped += skipped;
  }
  return total.passed + total.failed === 0 ? { ...total, failed: 1 } : total;
}

async function runCluster(files: readonly string[]): Promise<Counts> {
  try {
    // Built here, so that minutes of compiling do not count against a test's timeout.
    const inTree = files.some((file) => /in-tree|delete-installation/.test(file))
      ? (["kube-controller-manager"] as const)
      : [];
    const kubectl = files.some((file) =>
      /deploy|kubectl|installed-system|test\/installed|secret-of-another-program|delete-installation|helm-order|rbac|separate-webhook|secret-upgrade/.test(
        file,
      ),
    )
      ? (["kubectl"] as const)
      : [];
    await ensureBinaries(["etcd", "kube-apiserver", ...inTree, ...kubectl]);
    if (files.some((file) => file.includes("installed/cert-manager"))) await ensureCertManager();
    if (files.some((file) => file.includes("installed/monitoring"))) {
      for (const name of ["promtool", "prometheus"] as const) await ensurePrometheus(name);
    }
    if (files.some((file) => /installed\/(?:helm|installation-life)/.test(file))) {
      for (const version of HELM_VERSIONS) await ensureHelm(version);
    }
    if (files.some((file) => file.includes("installed/release"))) await ensureKrew();
    if (files.some((file) => file.includes("installed/kine"))) await ensureKine();
    if (files.some((file) => file.includes("deploy-render"))) {
      for (const version of KUBECTL_VERSIONS) await ensureKustomize(version);
    }
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    return { passed: 0, failed: files.length, skipped: 0 };
  }
  // Four at a time, on two cores too: mostly they wait, for a settle time or a Lease. The long versions of the chaos tests do not wait, and
  // take longer than .taprc allows the others.
  return runTap(files, process.env["CHAOS"] === "long" ? ["--jobs=1", "--timeout=3600"] : ["--jobs=4"]);
}

async function runAll(args: readonly string[]): Promise<number> {
  const { unit, long, cluster: chosen } = chooseFiles(args);
  const cluster = chosen.filter((file) => needOf(file) === undefined);
  const all: Counts[] = [];
  for (const file of chosen.filter((other) => !cluster.includes(other))) {
    console.log(`SKIP ${file}: ${needOf(file)}`);
    all.push({ passed: 0, failed: 0, skipped: 1 });
  }
  if (unit.length > 0) all.push(await runTap(unit, [`--jobs=${availableParallelism()}`, "--timeout=240"]));
  if (long.length > 0 && !interrupted) all.push(await runTap(long, ["--jobs=1", "--timeout=1200"]));
  if (cluster.length > 0 && !interrupted) all.push(await runCluster(cluster));
  const { passed, failed, skipped } = sum(all);
  console.log(`${passed} passed, ${failed} failed${skipped === 0 ? "" : `, ${skipped} skipped`}`);
  return failed === 0 ? 0 : 1;
}

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => {
    // Without a child there is nothing to wait for.
    if (children.size === 0 || interrupted) process.exit(130);
    interrupted = true;
    for (const { pid, exitCode } of children) {
      if (pid !== undefined && exitCode === null) process.kill(-pid, signal);
    }
  });
}

const exitCode = await runAll(process.argv.slice(2));
process.exitCode = interrupted ? 130 : exitCode;
