// Bundles the program into one file, dist/ksvm.js, which runs with nothing beside it but deploy/: node tools/build.ts
import { chmodSync, globSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";

const ROOT = join(import.meta.dirname, "..");
const PROGRAM = join(ROOT, "dist/ksvm.js");

/** CommonJS packages in it call `require` for modules of Node.js. */
const BANNER = 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);';

/** Bundles the program, unless that was done since its source last changed. @returns the path of the file */
export async function bundle(): Promise<string> {
  const sources = [...globSync("src/**/*.ts", { cwd: ROOT }), "package-lock.json", "package.json", "tools/build.ts"];
  const newest = Math.max(...sources.map((path) => statSync(join(ROOT, path)).mtimeMs));
  if (newest < (statSync(PROGRAM, { throwIfNoEntry: false })?.mtimeMs ?? 0)) return PROGRAM;
  await build({
    absWorkingDir: ROOT,
    entryPoints: ["src/cli/main.ts"],
    outfile: PROGRAM,
    bundle: true,
    platform: "node",
    format: "esm",
    // An older Node.js than is needed has to read it, to say so.
    target: "node18",
    // Without comments it is ASCII alone, of which V8 keeps one byte for each character. Licenses lie beside it.
    minifyWhitespace: true,
    legalComments: "external",
    banner: { js: BANNER },
    logLevel: "warning",
  });
  chmodSync(PROGRAM, 0o755);
  return PROGRAM;
}

if (import.meta.main) {
  rmSync(join(ROOT, "dist"), { recursive: true, force: true });
  await bundle();
}
