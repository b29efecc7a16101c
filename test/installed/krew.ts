import { ensureGoProgram } from "./go-program.ts";

/** Builds krew, the package manager of kubectl plugins. @returns its absolute path @throws {Error} where Go cannot build it */
export function ensureKrew(): Promise<string> {
  return ensureGoProgram({ name: "krew", folder: "krew", module: "sigs.k8s.io/krew", package: "cmd/krew" });
}
