// Writes src/resources/decodable-kinds.ts, what the API server of each release can read from etcd: node tools/decodable.ts
// It builds decodable/main.go with each release, three minutes each; what is there already comes from the cache of Go.
import { execFile } from "node:child_process";
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { CACHE_DIR } from "../test/control-plane/binaries.ts";
import { ensureModule } from "../test/control-plane/other-version.ts";
import { type DecodedKinds, tableText } from "./decodable-table.ts";

/** A patch of each minor release, from the oldest that ksvm works with, of which proxy.golang.org and its checksum database have every module. */
const RELEASES = ["v1.30.14", "v1.31.6", "v1.32.13", "v1.33.13", "v1.34.4", "v1.35.4", "v1.36.3"];
const TABLE = join(import.meta.dirname, "..", "src", "resources", "decodable-kinds.ts");
const run = promisify(execFile);

async function decodedBy(release: string): Promise<DecodedKinds> {
  const dir = await ensureModule(release, join(CACHE_DIR, "decodable"));
  const { stdout } = await run("go", ["mod", "download", "-json", `k8s.io/kubernetes@${release}`]);
  const sources = (JSON.parse(stdout) as { readonly Dir: string }).Dir;
  mkdirSync(dir, { recursive: true });
  copyFileSync(join(import.meta.dirname, "decodable", "main.go"), join(dir, "main.go"));
  writeFileSync(join(dir, "install.go"), installText(sources));
  const built = await run("go", ["run", "-mod=mod", "."], { cwd: dir, maxBuffer: 16_777_216 });
  return JSON.parse(built.stdout) as DecodedKinds;
}

/** The groups of a release, as its API server imports them. */
function installText(sources: string): string {
  const text = readFileSync(join(sources, "pkg", "controlplane", "import_known_versions.go"), "utf8");
  const imports = /^import \(\n[^)]*^\)\n/m.exec(text)?.[0];
  if (imports === undefined) throw new Error(`Cannot read which groups ${sources} has: import_known_versions.go is not as it was`);
  return `package main\n\n${imports}`;
}

const decoded = new Map<string, DecodedKinds>();
for (const release of RELEASES) {
  process.stderr.write(`${release}: what its API server decodes\n`);
  decoded.set(release, await decodedBy(release));
}
writeFileSync(TABLE, tableText(decoded));
