// Lays out a release under dist/release, the same bytes each time: node tools/release.ts --help
import { createHash } from "node:crypto";
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { stringify } from "yaml";
import { programVersion } from "../src/cli/shared/version.ts";
import { runScript, say } from "../bench/run-script.ts";
import { render } from "../test/integration/kubectl.ts";
import { RunningProgram } from "../test/processes/program.ts";
import { bomOf, type Lockfile } from "./cyclonedx.ts";
import { krewManifest } from "./krew.ts";

const ROOT = join(import.meta.dirname, "..");
const USAGE = `node tools/release.ts [--out <folder>] [--url <url>]
  --out <folder>   where the files go (dist/release)
  --url <url>      where they can be downloaded from: the folder of the krew manifest's archives. Without it, there is no krew manifest
  -h, --help       print this
The program must be built: make build. Needs npm and GNU tar.`;
/** What a package has, besides package.json: as in its "files". */
const PACKAGED = ["dist", "deploy", "docs", "README.md", "LICENSE", "CHANGELOG.md"] as const;
const LAUNCHER = `#!/bin/sh
# Where the link is that krew made, and where it leads.
self="$0"
while [ -L "$self" ]; do
  link="$(readlink "$self")"
  case "$link" in /*) self="$link" ;; *) self="$(dirname "$self")/$link" ;; esac
done
command -v node >/dev/null 2>&1 || { echo "error: Cannot run ksvm: Node.js 24 or newer is not installed, see https://nodejs.org/en/download" >&2; exit 1; }
exec node "$(dirname "$self")/package/kubectl-ksvm.js" "$@"
`;
/** Its name is what the usage calls the program by. */
const ENTRY = `import "./dist/ksvm.js";\n`;

await runScript(async () => {
  const { values } = parseArgs({
    options: {
      out: { type: "string", default: join(ROOT, "dist/release") },
      url: { type: "string" },
      help: { type: "boolean", short: "h", default: false },
    },
  });
  if (values.help) {
    process.stdout.write(`${USAGE}\n`);
    return;
  }
  rmSync(values.out, { recursive: true, force: true });
  mkdirSync(values.out, { recursive: true });
  const stage = mkdtempSync(join(tmpdir(), "ksvm-release-"));
  try {
    await layOut({ out: values.out, stage, url: values.url });
  } finally {
    rmSync(stage, { recursive: true, force: true });
  }
  writeFileSync(join(values.out, "SHA256SUMS"), checksums(values.out));
  for (const name of readdirSync(values.out).toSorted()) {
    say(`${name}  ${Math.round(readFileSync(join(values.out, name)).length / 1_024)} KiB`);
  }
});

interface Place {
  readonly out: string;
  readonly stage: string;
  readonly url: string | undefined;
}

async function layOut({ out, stage, url }: Place): Promise<void> {
  const version = programVersion();
  say("the npm package");
  await run("npm", ["pack", "--silent", "--pack-destination", out]);
  say("the kubectl plugin");
  const plugin = `kubectl-ksvm-${version}.tar.gz`;
  await stagePlugin(join(stage, "plugin"));
  await tar(join(stage, "plugin"), join(out, plugin));
  say("the Helm chart");
  mkdirSync(join(stage, "chart"));
  cpSync(join(ROOT, "deploy/chart"), join(stage, "chart/ksvm"), { recursive: true });
  await tar(join(stage, "chart"), join(out, `ksvm-chart-${version}.tgz`));
  say("the manifests");
  await writeManifests(out);
  const lockfile = JSON.parse(readFileSync(join(ROOT, "package-lock.json"), "utf8")) as Lockfile;
  writeFileSync(join(out, "sbom.cdx.json"), `${JSON.stringify(bomOf(lockfile), undefined, 2)}\n`);
  if (url === undefined) {
    say("no krew manifest: pass --url");
  } else {
    const sha256 = sha256Of(join(out, plugin));
    writeFileSync(join(out, "krew.yaml"), krewManifest({ version, uri: `${url.replace(/\/+$/, "")}/${plugin}`, sha256 }));
  }
}

/** What `kubectl apply --server-side -f` takes. */
async function writeManifests(out: string): Promise<void> {
  for (const [name, folder] of [
    ["install.yaml", "deploy/base"],
    ["install-cert-manager.yaml", "deploy/overlays/cert-manager"],
    ["initializer.yaml", "deploy/initializer"],
  ] as const) {
    const documents = (await render(folder)).map((object) => stringify(object, { aliasDuplicateObjects: false }));
    writeFileSync(join(out, name), documents.join("---\n"));
  }
}

/** The program with what it needs at run time, and no more. */
async function stagePlugin(folder: string): Promise<void> {
  const program = join(folder, "package");
  mkdirSync(program, { recursive: true });
  cpSync(join(ROOT, "package.json"), join(program, "package.json"));
  for (const name of PACKAGED) {
    cpSync(join(ROOT, name), join(program, name), {
      recursive: true,
      filter: (path) => !path.startsWith(join(ROOT, "dist/release")),
    });
  }
  writeFileSync(join(program, "kubectl-ksvm.js"), ENTRY);
  cpSync(join(ROOT, "LICENSE"), join(folder, "LICENSE"));
  writeFileSync(join(folder, "kubectl-ksvm"), LAUNCHER);
  chmodSync(join(folder, "kubectl-ksvm"), 0o755);
}

/** An archive in which neither the time nor the user who made it shows. */
async function tar(folder: string, file: string): Promise<void> {
  const plain = ["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "--mode=u+rw,go+r,go-w"];
  await run("tar", [...plain, "--format=ustar", "--use-compress-program=gzip -9n", "-cf", file, "-C", folder, "."]);
}

async function run(program: string, args: readonly string[], cwd = ROOT): Promise<void> {
  const { code, stderr } = await new RunningProgram(program, args, { cwd, timeoutMs: 600_000 }).ended;
  if (code !== 0) throw new Error(`Cannot run ${program} ${args.join(" ")}: ${stderr.trimEnd()}`);
}

/** As `sha256sum --check` reads it. */
function checksums(folder: string): string {
  return readdirSync(folder)
    .toSorted()
    .map((name) => `${sha256Of(join(folder, name))}  ${name}\n`)
    .join("");
}

function sha256Of(file: string): string {
  return createHash("sha256").update(readFileSync(file)).digest("hex");
}
