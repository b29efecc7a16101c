import { existsSync, readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { parse } from "yaml";

interface RawKubeconfig {
  readonly users?: readonly { readonly name?: string; readonly user?: { readonly tokenFile?: string } | null }[];
}

/**
 * The `tokenFile` of each user in kubeconfigs, which client-node passes over, as absolute paths by the user's name. As
 * with kubectl, the first file that names a user counts; files that do not exist are passed over.
 */
export function tokenFilesIn(kubeconfigs: readonly string[]): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  const seen = new Set<string>();
  for (const path of kubeconfigs.filter((file) => existsSync(file))) {
    for (const { name, user } of (parse(readFileSync(path, "utf8")) as RawKubeconfig | null)?.users ?? []) {
      if (name !== undefined && !seen.has(name) && user?.tokenFile !== undefined) {
        found.set(name, resolve(dirname(path), user.tokenFile));
      }
      seen.add(name ?? "");
    }
  }
  return found;
}
