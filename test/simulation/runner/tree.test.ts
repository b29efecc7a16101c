import { mkdirSync, writeFileSync } from "node:fs";
import { registerHooks } from "node:module";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import tap, { type Test } from "tap";
import { playedFiles, treeOf } from "./tree.ts";

const ROOT = join(import.meta.dirname, "../../..");

await tap.test("playedFiles() has every file that is loaded to play, and no part of the command line", async (t) => {
  const loaded = new Set<string>();
  const hooks = registerHooks({
    load(url, context, next) {
      if (url.startsWith("file:")) loaded.add(relative(ROOT, fileURLToPath(url)));
      return next(url, context);
    },
  });
  const { playHere } = await import("./play-here.ts");
  // One with controllers, one with certificates, one with `ksvm init`, and one with none of them.
  for (const seed of [4, 6, 8, 1]) t.same((await playHere({ seed })).violations, []);
  hooks.deregister();
  const own = [...loaded].filter((file) => /^(?:src|test)\//.test(file));
  t.ok(own.length > 300, `${own.length} files`);
  const played = new Set(playedFiles(ROOT));
  t.same(
    own.filter((file) => !played.has(file)),
    [],
  );
  t.ok(played.has("deploy/base/crds/storagestates.yaml"));
  t.same(
    [...played].filter((file) => /^src\/(?:cli|report|doctor)\//.test(file)),
    [],
  );
  t.ok(new Set(playedFiles(ROOT, true)).has("test/simulation/mutations/engine.ts"));
});

/** A repository with a player that imports two files, and one that nobody imports. */
function repository(t: Test): (file: string, text: string) => string {
  const root = t.testdir({});
  const write = (file: string, text: string): string => {
    mkdirSync(dirname(join(root, file)), { recursive: true });
    writeFileSync(join(root, file), text);
    return root;
  };
  write("package-lock.json", "{}");
  write("deploy/base/crds/a.yaml", "a: 1");
  write(
    "test/simulation/runner/play-here.ts",
    'import { a } from "../../../src/a.ts";\nimport type { B } from "./b.ts";\n',
  );
  write("src/a.ts", 'export const a = await import("./c.ts");\n');
  write("test/simulation/runner/b.ts", "export type B = 1;\n");
  write("src/c.ts", 'export { d } from "./d.ts";\n');
  write("src/d.ts", "export const d = 1;\n");
  write("src/other.ts", 'import { a } from "./a.ts";\n');
  return write;
}

await tap.test("treeOf() is another where a file has a part in the play, and the same where it has none", (t) => {
  const write = repository(t);
  const digestAfter = (file: string, text: string): string => treeOf(write(file, text), false).digest;
  const before = digestAfter("src/other.ts", "1");
  t.equal(digestAfter("src/other.ts", "2"), before);
  t.equal(digestAfter("docs/a.md", "2"), before);
  for (const file of ["src/d.ts", "test/simulation/runner/b.ts", "deploy/base/crds/a.yaml", "package-lock.json"]) {
    t.not(digestAfter(file, "2"), before, file);
  }
  t.end();
});
