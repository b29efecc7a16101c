import { readFileSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";
import tap from "tap";
import { MUTATIONS } from "./mutations.ts";
import { mutatedText } from "./mutations/mutated-text.ts";

const SRC = new URL("../../src/", import.meta.url);

await tap.test("each mutation has a name of its own, and changes the code that there is", async (t) => {
  t.equal(new Set(MUTATIONS.map(({ name }) => name)).size, MUTATIONS.length);
  for (const { edits, name, survives, withinSeeds } of MUTATIONS) {
    t.not(survives === undefined, withinSeeds === undefined, `${name}: it says how soon it is found, or why it is not`);
    for (const [file, ofFile] of Map.groupBy(edits, (edit) => edit.file)) {
      const text = readFileSync(new URL(file, SRC), "utf8");
      t.doesNotThrow(() => stripTypeScriptTypes(mutatedText(text, ofFile)), `${name}: ${file}`);
    }
  }
});

await tap.test("a mutation whose text is gone, or stands there twice, is refused", async (t) => {
  const edit = { file: "a.ts", from: "b", to: "c" };
  t.equal(mutatedText("abd", [edit]), "acd");
  t.throws(() => mutatedText("ad", [edit]), { message: "the text of a mutation stands 0 times in a.ts: b" });
  t.throws(() => mutatedText("bb", [edit]), { message: "the text of a mutation stands 2 times in a.ts: b" });
});
