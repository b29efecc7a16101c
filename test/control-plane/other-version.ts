import { execFile } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/**
 * Makes a Go module that builds another version of Kubernetes than go.mod beside this file: with the dependencies that
 * this version names itself, and its staging repositories as they were published with it.
 * @param kubernetes such as "v1.30.14"
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
    writeFileSync(goMod, goModText(kubernetes, own));
  }
  return dir;
}

async function downloadGoMod(kubernetes: string): Promise<string> {
  try {
    const { stdout } = await run("go", ["mod", "download", "-json", `k8s.io/kubernetes@${kubernetes}`]);
    return (JSON.parse(stdout) as { readonly GoMod: string }).GoMod;
  } catch (cause) {
    const text = `Cannot build Kubernetes ${kubernetes}: Go finds no module k8s.io/kubernetes@${kubernetes}`;
    throw new Error(`${text}; expected KUBERNETES_VERSION to be a released version, such as 1.30.14`, { cause });
  }
}

/** What a build outside of the repository of Kubernetes needs: there the staging repositories are folders. */
function goModText(kubernetes: string, own: string): string {
  const goVersion = /^go .+$/m.exec(own)?.[0] ?? "go 1.22.0";
  const published = kubernetes.replace(/^v1\./, "v0.");
  const staging = [...own.matchAll(/^\s*(?:replace )?(k8s\.io\/[a-z-]+) => \.\/staging/gm)].map(
    ([, name]) => `\t${name} => ${name} ${published}`,
  );
  const lines = [`module ksvm/kubernetes`, goVersion, `require k8s.io/kubernetes ${kubernetes}`];
  return [...lines, `replace (\n${staging.join("\n")}\n)`, ""].join("\n\n");
}
