import { execFile } from "node:child_process";
import { symlinkSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import tap from "tap";

import { shippedCrds } from "../../src/initializer/shipped-crds.ts";

const ROOT = join(import.meta.dirname, "../..");

/** Runs node without the hooks that tap puts into child processes, which the TypeScript compiler does not stand. */
function runNode(args: readonly string[], cwd: string): Promise<{ readonly stdout: string }> {
  return promisify(execFile)("env", ["-u", "NODE_OPTIONS", process.execPath, ...args], { cwd });
}

await tap.test("shippedCrds() finds the CRDs in a checkout", async (t) => {
  t.same(
    shippedCrds().map(({ metadata }) => metadata.name),
    ["storagestates.migration.k8s.io", "storageversionmigrations.migration.k8s.io"],
  );
});

await tap.test("shippedCrds() finds the CRDs from the compiled program, as the package holds it", async (t) => {
  const folder = t.testdir({});
  for (const name of ["package.json", "node_modules", "deploy"]) {
    symlinkSync(join(ROOT, name), join(folder, name));
  }
  const tsc = join(ROOT, "node_modules/typescript/bin/tsc");
  await runNode([tsc, "-p", join(ROOT, "tsconfig.build.json"), "--outDir", join(folder, "dist")], folder);
  const script = 'import { shippedCrds } from "./dist/initializer/shipped-crds.js"; console.log(shippedCrds().length)';
  const { stdout } = await runNode(["--input-type=module", "-e", script], folder);
  t.equal(stdout, "2\n");
});
