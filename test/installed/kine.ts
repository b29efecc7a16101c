import { ensureGoProgram } from "./go-program.ts";

/**
 * Builds kine, which k3s and others run in the place of etcd. Its SQLite is in C.
 * @returns its absolute path
 * @throws {Error} where Go cannot build it, as without a C compiler
 */
export function ensureKine(): Promise<string> {
  return ensureGoProgram({ name: "kine", folder: "kine", module: "github.com/k3s-io/kine", withC: true });
}
