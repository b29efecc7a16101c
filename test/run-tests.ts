import { createHash, randomInt } from "node:crypto";
import { globSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join, matchesGlob, relative, resolve } from "node:path";

import { randomFrom, shuffled } from "./chaos/random.ts";
import { ensureBinaries } from "./control-plane/binaries.ts";
import { ensureCertManager } from "./installed/cert-manager.ts";
import { ensureHelm, HELM_VERSIONS } from "./installed/helm.ts";
import { ensureKine } from "./installed/kine.ts";
import { ensureKrew } from "./installed/krew.ts";
import { ensurePrometheus } from "./installed/prometheus.ts";
import { ensureKustomize, KUBECTL_VERSIONS } from "./control-plane/kustomize.ts";
import { type Counts, TestFiles } from "./processes/test-files.ts";
import { needOf } from "./needs.ts";

const ROOT = join(import.meta.dirname, "..");
const CLUSTER = "test/{control-plane,contract,integration,chaos,simulation/fidelity}/**/*.test.ts";

/** What is installed beside programs of others, which take minutes to build: `make test-install`. */
const INSTALLED = "test/installed/**/*.test.ts";

/** They need no cluster, and use all cores for a minute or more: `make check` does without them. */
const LONG = "test/{simulation/simulation,webhook/floods}.test.ts";

const files = new TestFiles(ROOT, {
  // Tests start thousands of processes, and compiling takes a third of what it costs to start one.
  NODE_COMPILE_CACHE: join(ROOT, ".cache/node-compile-cache"),
  ...process.env,
});

const isCluster = (file: string): boolean => matchesGlob(file, CLUSTER);
const isLong = (file: string): boolean => matchesGlob(file, LONG);
const isInstalled = (file: string): boolean => matchesGlob(file, INSTALLED);
/** Everything else is a unit test, so that no directory is forgotten. */
const isUnit = (file: string): boolean => !isCluster(file) && !isLong(file) && !isInstalled(file);

function find(isWanted: (file: string) => boolean): readonly string[] {
  return globSync("test/**/*.test.ts", { cwd: ROOT }).filter(isWanted).toSorted();
}

/** In an order that spreads files of one kind: in the order of their names, those that load the machine are together, and those that wait. */
function spread(all: readonly string[]): readonly string[] {
  return all.toSorted((a, b) => (digestOf(a) < digestOf(b) ? -1 : 1));
}

function digestOf(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

interface Chosen {
  readonly unit: readonly string[];
  readonly long: readonly string[];
  readonly cluster: readonly string[];
}

/** With so many processors, all cluster tests take less than an hour. */
const ALL_FROM_PROCESSORS = 4;

/**
 * What a smaller machine leaves out, as chance chooses: half of the chaos tests, which load it most, and a third of the integration tests.
 * `cluster` runs all.
 */
function leftOut(): readonly string[] {
  if (availableParallelism() >= ALL_FROM_PROCESSORS) return [];
  return [...shareOf("test/chaos/*.test.ts", 1 / 2), ...shareOf("test/integration/*.test.ts", 1 / 3)];
}

function shareOf(pattern: string, share: number): readonly string[] {
  const all = shuffled(randomFrom(randomInt(2 ** 31)), globSync(pattern, { cwd: ROOT }));
  return all.slice(0, Math.floor(all.length * share));
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

async function runCluster(chosen: readonly string[]): Promise<readonly Counts[]> {
  try {
    // Built here, so that minutes of compiling do not count against a test's timeout.
    const inTree = chosen.some((file) => /in-tree|delete-installation/.test(file))
      ? (["kube-controller-manager"] as const)
      : [];
    const kubectl = chosen.some((file) =>
      /deploy|kubectl|installed-system|test\/installed|secret-of-another-program|delete-installation|helm-order|rbac|separate-webhook|secret-upgrade|webhook-url-rollout/.test(
        file,
      ),
    )
      ? (["kubectl"] as const)
      : [];
    await ensureBinaries(["etcd", "kube-apiserver", ...inTree, ...kubectl]);
    if (chosen.some((file) => file.includes("installed/cert-manager"))) await ensureCertManager();
    if (chosen.some((file) => file.includes("installed/monitoring"))) {
      for (const name of ["promtool", "prometheus"] as const) await ensurePrometheus(name);
    }
    if (chosen.some((file) => /installed\/(?:helm|installation-life)/.test(file))) {
      for (const version of HELM_VERSIONS) await ensureHelm(version);
    }
    if (chosen.some((file) => file.includes("installed/release"))) await ensureKrew();
    if (chosen.some((file) => file.includes("installed/kine"))) await ensureKine();
    if (chosen.some((file) => file.includes("deploy-render"))) {
      for (const version of KUBECTL_VERSIONS) await ensureKustomize(version);
    }
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    return [{ passed: 0, failed: chosen.length, skipped: 0 }];
  }
  // Four at a time, on two cores too: mostly they wait, for a settle time or a Lease. The long versions of the chaos tests do not wait, and
  // take longer.
  const isLongChaos = process.env["CHAOS"] === "long";
  return files.run(chosen, isLongChaos ? { jobs: 1, timeoutSeconds: 3_600 } : { jobs: 4, timeoutSeconds: 1_200 });
}

async function runAll(args: readonly string[]): Promise<number> {
  const { unit, long, cluster: chosen } = chooseFiles(args);
  const left = args.length === 0 ? leftOut() : [];
  const whyNot = (file: string): string | undefined =>
    left.includes(file) ? "left out this time, as chance chose (make test-cluster runs all)" : needOf(file);
  const cluster = chosen.filter((file) => whyNot(file) === undefined);
  const all: Counts[] = [];
  for (const file of chosen.filter((other) => !cluster.includes(other))) {
    console.log(`SKIP ${file}: ${whyNot(file)}`);
    all.push({ passed: 0, failed: 0, skipped: 1 });
  }
  all.push(...(await files.run(unit, { jobs: availableParallelism(), timeoutSeconds: 240 })));
  all.push(...(await files.run(long, { jobs: 1, timeoutSeconds: 1_200 })));
  if (cluster.length > 0 && !files.isInterrupted) all.push(...(await runCluster(cluster)));
  if (files.failures.length > 0) console.log(`failed:\n${files.failures.map((name) => `  ${name}\n`).join("")}`);
  const { passed, failed, skipped } = sum(all);
  console.log(`${passed} passed, ${failed} failed${skipped === 0 ? "" : `, ${skipped} skipped`}`);
  return failed === 0 ? 0 : 1;
}

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => {
    // Without a file there is nothing to wait for; a second signal does not wait.
    if (files.isInterrupted || !files.interrupt(signal)) process.exit(130);
  });
}

const exitCode = await runAll(process.argv.slice(2));
process.exitCode = files.isInterrupted ? 130 : exitCode;
