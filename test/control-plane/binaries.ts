import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { accessSync, constants, existsSync, mkdirSync, renameSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";

import { RunningProgram } from "../processes/program.ts";
import { findInEnvtest } from "./envtest.ts";
import { ensureModule } from "./other-version.ts";
import { readVersions, type Versions } from "./versions.ts";

/** In build order: the smallest first, so that a broken toolchain shows early. */
const PACKAGES = {
  etcd: "go.etcd.io/etcd/server/v3",
  kubectl: "k8s.io/kubernetes/cmd/kubectl",
  "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
  "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
} as const;

export type BinaryName = keyof typeof PACKAGES;

/** The project's folder for everything that may be thrown away, as an absolute path. */
export const CACHE_DIR = join(import.meta.dirname, "..", "..", ".cache", "control-plane");

/**
 * Finds the given programs and returns their absolute paths. With KUBEBUILDER_ASSETS set they come from that folder;
 * without it they are built by Go, once per version, into .cache/control-plane/bin.
 * @throws {Error} with a one-line message when a program is neither there nor can be built
 */
export async function ensureBinaries<N extends BinaryName>(names: readonly N[]): Promise<Record<N, string>> {
  const assets = process.env["KUBEBUILDER_ASSETS"];
  const paths: Partial<Record<BinaryName, string>> = {};
  for (const name of Object.keys(PACKAGES) as BinaryName[]) {
    if (!(names as readonly BinaryName[]).includes(name)) continue;
    paths[name] = assets && isAsset(assets, name) ? findAsset(assets, name) : await ensureBuilt(name);
  }
  return paths as Record<N, string>;
}

/** The bundles that KUBEBUILDER_ASSETS names hold no controller manager: it is built where it is not there. */
function isAsset(folder: string, name: BinaryName): boolean {
  return name !== "kube-controller-manager" || existsSync(join(folder, name));
}

function findAsset(folder: string, name: BinaryName): string {
  const path = join(folder, name);
  try {
    accessSync(path, constants.X_OK);
  } catch (cause) {
    throw new Error(
      `Cannot find "${name}" in the folder that KUBEBUILDER_ASSETS names ("${folder}"); put it there, or unset KUBEBUILDER_ASSETS to build it with Go`,
      { cause },
    );
  }
  return path;
}

async function ensureBuilt(name: BinaryName): Promise<string> {
  const asked = readVersions();
  // etcd has a version of its own: go.mod names one, and it serves every version of Kubernetes.
  const versions = name === "etcd" ? { ...asked, kubernetes: asked.pinnedKubernetes } : asked;
  const folder = join(
    CACHE_DIR,
    "bin",
    `${versions.kubernetes}-etcd${versions.etcd}-${process.platform}-${process.arch}`,
  );
  const path = join(folder, name);
  if (existsSync(path)) return path;
  const downloaded = findInEnvtest(name, asked.kubernetes);
  if (downloaded !== undefined) {
    tellOnce(`using ${downloaded}, which setup-envtest has downloaded`);
    return downloaded;
  }
  requireGo(versions.go);
  tellOnce(WHY_IT_BUILDS);
  await buildOnce(path, (unfinished) => build(name, unfinished, versions));
  return path;
}

const WHY_IT_BUILDS =
  "building a real control plane from Go modules, for demo, tests and benchmarks: once, some eight minutes on two cores; kept in .cache/. " +
  "Shorter: KUBEBUILDER_ASSETS=FOLDER with etcd, kube-apiserver and kubectl, or setup-envtest use";
const told = new Set<string>();

function tellOnce(text: string): void {
  if (!told.has(text)) {
    told.add(text);
    process.stderr.write(`${text}\n`);
  }
}

/** Builds a program into a file. Two processes may do so at once; each renames its own finished file, so none runs half a file. */
export async function buildOnce(path: string, build: (unfinished: string) => Promise<void>): Promise<void> {
  mkdirSync(dirname(path), { recursive: true });
  const unfinished = `${path}.${randomBytes(6).toString("hex")}.tmp`;
  try {
    await build(unfinished);
    renameSync(unfinished, path);
  } finally {
    rmSync(unfinished, { force: true });
  }
}

function requireGo(oldest: string): void {
  const found = spawnSync("go", ["version"], { stdio: "ignore" });
  if (found.error === undefined) return;
  const wanted = oldest.split(".").slice(0, 2).join(".");
  throw new Error(
    `Cannot build the control plane: no Go toolchain found on PATH and KUBEBUILDER_ASSETS is not set; install Go ${wanted} or newer, or point KUBEBUILDER_ASSETS at a folder with etcd, kube-apiserver and kubectl`,
  );
}

async function build(name: BinaryName, output: string, { kubernetes, pinnedKubernetes }: Versions): Promise<void> {
  const isPinned = kubernetes === pinnedKubernetes;
  const cwd = isPinned ? import.meta.dirname : await ensureModule(kubernetes, join(CACHE_DIR, "modules"));
  const [major = "", minor = ""] = kubernetes.slice(1).split(".");
  const version = "k8s.io/component-base/version";
  const ldflags = `-s -w -X ${version}.gitVersion=${kubernetes} -X ${version}.gitMajor=${major} -X ${version}.gitMinor=${minor}`;
  const mode = `-mod=${isPinned ? "readonly" : "mod"}`;
  await goBuild(name, [mode, "-ldflags", ldflags, "-o", output, PACKAGES[name]], cwd);
}

/**
 * Runs `go build` in the folder of a module, and shows that on stderr.
 * @param withC whether parts of the program are in C, and a C compiler is needed. @default false
 * @throws {Error} where it fails
 */
export async function goBuild(name: string, args: readonly string[], cwd: string, withC = false): Promise<void> {
  const env = { ...process.env, CGO_ENABLED: withC ? "1" : "0" };
  const total = await countPackages(args, cwd);
  // Nothing here is debugged, and a sixth of the time of a compilation goes into what a debugger reads.
  const build = ["build", "-trimpath", "-gcflags=all=-dwarf=false", "-v"];
  const go = new RunningProgram("go", [...build, ...args], { cwd, env, stdout: "ignore" });
  const done = showProgress(name, () => go.stderr.split("\n").length - 1, total);
  try {
    const { code, stderr } = await go.ended;
    const errors = stderr.split("\n").filter((line) => !PACKAGE_LINE.test(line));
    if (code !== 0) throw new Error(`Cannot build "${name}": go build ended with code ${code}:\n${errors.join("\n")}`);
  } finally {
    done();
  }
}

/** What `go build -v` says of each package that it compiles. */
const PACKAGE_LINE = /^(?:[\w./~-]+)$/;

/** The packages of a program; 0 where Go does not tell. Those that Go has in its cache are not compiled again. */
async function countPackages(args: readonly string[], cwd: string): Promise<number> {
  const [mode = "-mod=readonly", main = "."] = [args[0], args.at(-1)];
  const { code, stdout } = await new RunningProgram("go", ["list", mode, "-deps", main], { cwd }).ended;
  return code === 0 ? stdout.split("\n").length - 1 : 0;
}

const BAR_WIDTH = 24;

/** Tells on stderr what is being built, how far that is and for how long; returns the function that ends the display. */
function showProgress(name: string, compiled: () => number, total: number): () => void {
  const started = performance.now();
  const inPlace = process.stderr.isTTY;
  const show = (end: string): void => {
    const seconds = Math.round((performance.now() - started) / 1000);
    const share = total === 0 ? 0 : Math.min(1, compiled() / total);
    const bar = total === 0 ? "" : `[${"#".repeat(Math.round(share * BAR_WIDTH)).padEnd(BAR_WIDTH, ".")}] `;
    const line = `building ${name}: ${bar}${compiled()} of up to ${total} packages, ${seconds} s`;
    process.stderr.write(inPlace ? `\r${line}\u001B[K${end}` : `${line}\n`);
  };
  show("");
  const timer = setInterval(show, inPlace ? 1000 : 30_000, "");
  return () => {
    clearInterval(timer);
    show("\n");
  };
}
