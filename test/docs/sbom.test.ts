import { readFileSync } from "node:fs";
import tap from "tap";
import { bomOf, type Lockfile } from "../../tools/cyclonedx.ts";

interface Bom {
  readonly components: readonly {
    readonly name: string;
    readonly version: string;
    readonly purl: string;
    readonly hashes: readonly { readonly alg: string; readonly content: string }[];
  }[];
}

const read = (path: string): unknown => JSON.parse(readFileSync(new URL(`../../${path}`, import.meta.url), "utf8"));
const lockfile = read("package-lock.json") as Lockfile;

await tap.test("bomOf() lists every package of the image with its hash, and none of development", async (t) => {
  const { components } = bomOf(lockfile) as Bom;
  const names = new Set(components.map(({ name }) => name));
  const { dependencies, devDependencies } = read("package.json") as {
    readonly dependencies: Readonly<Record<string, string>>;
    readonly devDependencies: Readonly<Record<string, string>>;
  };
  t.same(
    Object.keys(dependencies).filter((name) => !names.has(name)),
    [],
  );
  for (const name of ["tap", "typescript", "@biomejs/biome"]) {
    t.ok(devDependencies[name] !== undefined && !names.has(name), name);
  }
  t.ok(
    components.every(({ hashes }) => hashes.every(({ alg, content }) => alg === "SHA-512" && content.length === 128)),
  );
  t.equal(new Set(components.map(({ purl }) => purl)).size, components.length, "each once");
  t.ok(components.some(({ purl }) => purl.startsWith("pkg:npm/%40kubernetes/client-node@")));
});
