import { existsSync, readdirSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";

const ARCHITECTURES: Readonly<Record<string, string>> = { x64: "amd64", arm64: "arm64" };

/** Where `setup-envtest use` keeps what it downloads: https://pkg.go.dev/sigs.k8s.io/controller-runtime/tools/setup-envtest/store */
function storeOf(variables: NodeJS.ProcessEnv): string {
  const data =
    process.platform === "darwin" ? join(homedir(), "Library/Application Support/io") : join(homedir(), ".local/share");
  const folder = process.platform === "darwin" ? "kubebuilder.envtest" : "kubebuilder-envtest";
  return join(variables["XDG_DATA_HOME"] ?? data, folder, "k8s");
}

/**
 * The newest of the folders that has a patch release of the same minor.
 * @param folders as setup-envtest names them, such as `1.36.2-linux-amd64`
 * @param kubernetes such as `v1.36.3`
 */
export function newestPatch(folders: readonly string[], kubernetes: string): string | undefined {
  const [, minor = ""] = /^v(\d+\.\d+)\./.exec(kubernetes) ?? [];
  const system = `${process.platform}-${ARCHITECTURES[process.arch] ?? process.arch}`;
  const patchOf = (folder: string): number => {
    const [, release, patch, rest] = /^(\d+\.\d+)\.(\d+)-(.+)$/.exec(folder) ?? [];
    return release === minor && rest === system ? Number(patch) : -1;
  };
  const best = folders.toSorted((a, b) => patchOf(b) - patchOf(a))[0];
  return best !== undefined && patchOf(best) >= 0 ? best : undefined;
}

/** The program as setup-envtest has downloaded it, of the same minor release; `undefined` where it has not. */
export function findInEnvtest(name: string, kubernetes: string, variables = process.env): string | undefined {
  const store = storeOf(variables);
  const folder = existsSync(store) ? newestPatch(readdirSync(store), kubernetes) : undefined;
  const path = folder === undefined ? undefined : join(store, folder, name);
  return path !== undefined && existsSync(path) ? path : undefined;
}
