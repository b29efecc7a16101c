import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t from "tap";
import { parse } from "yaml";
import { programVersion } from "../../src/cli/shared/version.ts";
import { bundle } from "../../tools/build.ts";
import { Cluster } from "../integration/cluster.ts";
import { TestKind } from "../integration/crd-fixture.ts";
import { type ProgramEnd, RunningProgram } from "../processes/program.ts";
import { ensureKrew } from "./krew.ts";

const ROOT = join(import.meta.dirname, "../..");
const VERSION = programVersion();
const folder = mkdtempSync(join(tmpdir(), "ksvm-release-test-"));
t.teardown(() => rmSync(folder, { recursive: true, force: true }));

function run(program: string, args: readonly string[], env: NodeJS.ProcessEnv = process.env): Promise<ProgramEnd> {
  return new RunningProgram(program, args, { cwd: ROOT, env, timeoutMs: 180_000, withoutTap: env === process.env })
    .ended;
}

/** What a shell script and npm need: no compiler, and no ksvm of this checkout. */
const TOOLS = ["sh", "env", "dirname", "readlink", "npm"] as const;
const bin = join(folder, "bin");
mkdirSync(bin);
for (const tool of TOOLS) {
  const { stdout } = await new RunningProgram("sh", ["-c", `command -v ${tool}`]).ended;
  symlinkSync(stdout.trim(), join(bin, tool));
}
// The rest of the environment says where npm finds packages.
const { NODE_OPTIONS: _ofTap, ...rest } = process.env;
const withoutNode = { ...rest, PATH: bin };
const nodeBin = join(folder, "node");
mkdirSync(nodeBin);
symlinkSync(process.execPath, join(nodeBin, "node"));
const withNode = { ...rest, PATH: `${bin}:${nodeBin}` };

await bundle();
const krew = await ensureKrew();

const cluster = await Cluster.start(t);

await t.test("a release has the same bytes each time, and its checksums are right", async (t) => {
  const [first, second] = [join(folder, "first"), join(folder, "second")];
  for (const out of [first, second]) {
    const made = await run(process.execPath, ["tools/release.ts", "--out", out, "--url", "https://example.com/v0"]);
    t.equal(made.code, 0, made.stderr);
  }
  const sums = readFileSync(join(first, "SHA256SUMS"), "utf8");
  t.equal(readFileSync(join(second, "SHA256SUMS"), "utf8"), sums);
  t.same(
    sums
      .trim()
      .split("\n")
      .map((line) => line.split("  ")[1]),
    [
      "initializer.yaml",
      "install-cert-manager.yaml",
      "install.yaml",
      "krew.yaml",
      `ksvm-${VERSION}.tgz`,
      `ksvm-chart-${VERSION}.tgz`,
      `kubectl-ksvm-${VERSION}.tar.gz`,
      "sbom.cdx.json",
    ],
  );
  const check = await new RunningProgram("sha256sum", ["--check", "--quiet", "SHA256SUMS"], { cwd: first }).ended;
  t.match(check, { code: 0, stdout: "" });
  const { spec } = parse(readFileSync(join(first, "krew.yaml"), "utf8")) as {
    spec: { version: string; platforms: readonly { uri: string; sha256: string }[] };
  };
  t.equal(spec.version, `v${VERSION}`);
  t.ok(sums.includes(`${spec.platforms[0]?.sha256}  kubectl-ksvm-${VERSION}.tar.gz`));
  t.equal(spec.platforms[0]?.uri, `https://example.com/v0/kubectl-ksvm-${VERSION}.tar.gz`);
});

await t.test("the npm package installs into an empty prefix without a compiler, and migrates", async (t) => {
  const prefix = join(folder, "prefix");
  const tarball = join(folder, "first", `ksvm-${VERSION}.tgz`);
  const npm = ["install", "--global", "--prefix", prefix, "--no-audit", "--no-fund", "--loglevel=error", tarball];
  const installed = await run("npm", npm, { ...withNode, npm_config_cache: join(folder, "cache") });
  t.match(installed, { code: 0, stderr: "" });
  const ksvm = (...args: readonly string[]) =>
    run(join(prefix, "bin/ksvm"), args, { ...withNode, KUBECONFIG: cluster.kubeconfig });
  t.match(await ksvm("version"), { code: 0, stdout: new RegExp(`^ksvm ${VERSION} `) });
  const kind = new TestKind("packed");
  await cluster.createStale(kind, 5);
  t.match(await ksvm("migrate", kind.name, "--unsafe-settle", "1s"), { code: 0, stderr: "" });
  t.same(await cluster.storedAs(kind), { v1: 5 });
  t.match(await ksvm("init", "--dry-run"), { code: 0, stdout: /CustomResourceDefinition "storagestates/ });
  const plugin = await run(join(prefix, "bin/kubectl-ksvm"), ["--help"], withNode);
  t.match(plugin, { code: 0, stdout: /^Usage: kubectl ksvm / });
});

await t.test("the kubectl plugin runs where krew puts it, by a link", async (t) => {
  const store = join(folder, "store");
  mkdirSync(store);
  const archive = join(folder, "first", `kubectl-ksvm-${VERSION}.tar.gz`);
  t.match(await run("tar", ["-xzf", archive, "-C", store]), { code: 0, stderr: "" });
  const link = join(folder, "bin/kubectl-ksvm");
  symlinkSync(join(store, "kubectl-ksvm"), link);
  t.match(await run(link, ["version"], withNode), { code: 0, stdout: new RegExp(`^ksvm ${VERSION} `) });
  t.match(await run(link, ["help", "plan"], withNode), { code: 0, stdout: /^Usage: kubectl ksvm plan / });
  t.match(await run(link, ["version"], withoutNode), {
    code: 1,
    stderr: /^error: .*Node\.js 24 or newer is not installed/,
  });
});

await t.test("krew installs, lists and removes the plugin, by the manifest and the archive", async (t) => {
  const first = join(folder, "first");
  const root = join(folder, "krew");
  // An index of plugins without plugins, which krew would fetch: it lists and removes nothing without one.
  const index = join(root, "index/default");
  mkdirSync(join(index, "plugins"), { recursive: true });
  t.match(await new RunningProgram("git", ["init", "--quiet", index]).ended, { code: 0 });
  const run = (...args: readonly string[]): Promise<ProgramEnd> =>
    new RunningProgram(krew, args, { env: { ...process.env, KREW_ROOT: root }, timeoutMs: 180_000 }).ended;
  const archive = join(first, `kubectl-ksvm-${VERSION}.tar.gz`);
  const installed = await run("install", `--manifest=${join(first, "krew.yaml")}`, `--archive=${archive}`);
  t.equal(installed.code, 0, installed.stderr);
  t.match(installed.stderr, /It needs Node\.js 24 or newer/, "the caveat is shown");
  t.match(await run("list"), { code: 0, stdout: /^detached\/ksvm\n/ });
  const plugin = new RunningProgram(join(root, "bin/kubectl-ksvm"), ["--help"], { env: withNode });
  t.match(await plugin.ended, { code: 0, stdout: /^Usage: kubectl ksvm / });
  const removed = await run("uninstall", "ksvm");
  t.equal(removed.code, 0, removed.stderr);
  t.notOk(existsSync(join(root, "bin/kubectl-ksvm")));
});
