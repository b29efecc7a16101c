import { execFile } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/**
 * Makes a Go module that builds another version of Kubernetes than go.mod beside this file: with the dependencies that
 * this version names itself, and its staging repositories as they were published with it.
 * @param kubernetes such as "v1.32.9"
 * @param folder where modules are kept; one that is there already is used again
 * @returns the folder of the module
 * @throws {Error} with a one-line message where there is no such version
 */
export async function ensureModule(kubernetes: string, folder: string): Promise<string> {
  const dir = join(folder, kubernetes);
  const goMod = join(dir, "go.mod");
  if (!existsSync(goMod)) {
    const own = readFileSync(await downloadGoMod(kubernetes), "utf8");
    mkdirSync(dir, { recursive: true });
    writeFileSync(goMod, await goModText(kubernetes, own));
  }
  return dir;
}

async function downloadGoMod(kubernetes: string): Promise<string> {
  try {
    const { stdout } = await run("go", ["mod", "download", "-json", `k8s.io/kubernetes@${kubernetes}`]);
    return (JSON.parse(stdout) as { readonly GoMod: string }).GoMod;
  } catch (cause) {
    const text = `Cannot build Kubernetes ${kubernetes}: Go finds no module k8s.io/kubernetes@${kubernetes}`;
    throw new Error(`${text}; expected KUBERNETES_VERSION to be a released version, such as 1.32.9`, { cause });
  }
}

/** What a build outside of the repository of Kubernetes needs: there the staging repositories are folders. */
async function goModText(kubernetes: string, own: string): Promise<string> {
  const goVersion = /^go .+$/m.exec(own)?.[0] ?? "go 1.22.0";
  const names = [...own.matchAll(/^\s*(?:replace )?(k8s\.io\/[a-z-]+) => \.\/staging/gm)].map(([, name = ""]) => name);
  const staging = await publishedVersions(names, kubernetes.replace(/^v1\./, "v0."));
  const replacements = [...staging].map(([name, version]) => `\t${name} => ${name} ${version}`);
  const lines = [`module ksvm/kubernetes`, goVersion, `require k8s.io/kubernetes ${kubernetes}`];
  return [...lines, `replace (\n${replacements.join("\n")}\n)`, ""].join("\n\n");
}

/**
 * The version of each staging repository to build with: the one asked for, or where a module proxy does not have it, the newest patch
 * before it.
 */
async function publishedVersions(names: readonly string[], asked: string): Promise<ReadonlyMap<string, string>> {
  const found = new Map<string, string>();
  const [, minor = "", patch = ""] = /^(v0\.\d+)\.(\d+)$/.exec(asked) ?? [];
  for (let tried = Number(patch); tried >= 0 && found.size < names.length; tried--) {
    const version = `${minor}.${tried}`;
    const missing = names.filter((name) => !found.has(name));
    for (const name of await downloadable(missing, version)) {
      found.set(name, version);
    }
  }
  return new Map(names.map((name) => [name, found.get(name) ?? asked]));
}

/** Those of the modules that Go can download in this version. It is told of each, and ends with 1 where one cannot be had. */
async function downloadable(names: readonly string[], version: string): Promise<readonly string[]> {
  const modules = names.map((name) => `${name}@${version}`);
  const { stdout } = await run("go", ["mod", "download", "-json", ...modules], {
    cwd: tmpdir(),
    maxBuffer: 2 ** 24,
  }).catch((error: { readonly stdout?: string }) => ({ stdout: error.stdout ?? "" }));
  const answers = stdout
    .split(/^(?=\{)/m)
    .filter((text) => text.trim() !== "")
    .map((text) => JSON.parse(text) as { readonly Path: string; readonly Error?: string });
  return answers.filter(({ Error: problem }) => problem === undefined).map(({ Path }) => Path);
}
