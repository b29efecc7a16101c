import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { stripTypeScriptTypes } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import tap, { type Test } from "tap";
import { MUTATIONS } from "./mutations.ts";
import { mutatedText } from "./mutations/mutated-text.ts";

const SRC = new URL("../../src/", import.meta.url);
const OXLINT = fileURLToPath(new URL("../../node_modules/.bin/oxlint", import.meta.url));

await tap.test("each mutation has a name of its own, and changes the code that there is", async (t) => {
  t.equal(new Set(MUTATIONS.map(({ name }) => name)).size, MUTATIONS.length);
  for (const { edits, found, name, survives } of MUTATIONS) {
    t.not(survives === undefined, found === undefined, `${name}: it says which seed finds it, or why none does`);
    for (const [file, ofFile] of Map.groupBy(edits, (edit) => edit.file)) {
      const text = readFileSync(new URL(file, SRC), "utf8");
      t.doesNotThrow(() => stripTypeScriptTypes(mutatedText(text, ofFile)), `${name}: ${file}`);
    }
  }
});

/** So that only names which no file and no Node know are found. */
const LINT = JSON.stringify({
  categories: { correctness: "off" },
  env: { builtin: true, node: true, browser: true },
  rules: { "no-undef": "error" },
});

/** @returns what oxlint says of these files, by their names */
async function unknownNames(t: Test, files: Readonly<Record<string, string>>): Promise<string> {
  // It looks at no files under a hidden folder, as t.testdir() has them.
  const dir = await mkdtemp(join(tmpdir(), "mutations-"));
  t.teardown(() => rm(dir, { recursive: true }));
  for (const [name, text] of Object.entries(files)) await writeFile(join(dir, name), text);
  const config = join(dir, "oxlint.json");
  await writeFile(config, LINT);
  // tap has every Node that a test starts load modules of its own, with which oxlint cannot be loaded.
  const args = ["-u", "NODE_OPTIONS", process.execPath, OXLINT, "--config", config, "--format=unix", "."];
  return await promisify(execFile)("env", args, { cwd: dir }).then(
    () => "",
    (error: { readonly stdout: string; readonly stderr: string }) => error.stdout + error.stderr,
  );
}

await tap.test(
  "no mutation names what its file does not know, which would break everything but what it says",
  async (t) => {
    const files = MUTATIONS.flatMap(({ edits, name }, index) =>
      [...Map.groupBy(edits, (edit) => edit.file)].map(([file, ofFile], part) => {
        const text = mutatedText(readFileSync(new URL(file, SRC), "utf8"), ofFile);
        return [`${index}-${part}.ts`, `// ${name}\n${text}`] as const;
      }),
    );
    t.equal(await unknownNames(t, Object.fromEntries(files)), "");
    t.match(await unknownNames(t, { "a.ts": "unknown();" }), /'unknown' is not defined/, "negative control");
  },
);

await tap.test("a mutation whose text is gone, or stands there twice, is refused", async (t) => {
  const edit = { file: "a.ts", from: "b", to: "c" };
  t.equal(mutatedText("abd", [edit]), "acd");
  t.throws(() => mutatedText("ad", [edit]), { message: "the text of a mutation stands 0 times in a.ts: b" });
  t.throws(() => mutatedText("bb", [edit]), { message: "the text of a mutation stands 2 times in a.ts: b" });
});
