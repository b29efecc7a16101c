import { readFileSync } from "node:fs";
import { registerHooks, stripTypeScriptTypes } from "node:module";
import { fileURLToPath } from "node:url";
import { MUTATIONS } from "./mutations.ts";
import { mutatedText } from "./mutations/mutated-text.ts";

// Loaded before everything else (node --import): has files of src/ read as a mutation changes them. MUTATION names it.

const SRC = new URL("../../src/", import.meta.url);
const wanted = process.env["MUTATION"];
const mutation = MUTATIONS.find(({ name }) => name === wanted);
if (mutation === undefined) throw new Error(`there is no mutation "${wanted}"`);
const editsByUrl = Map.groupBy(mutation.edits, ({ file }) => new URL(file, SRC).href);

registerHooks({
  load(target, context, next) {
    const edits = editsByUrl.get(target);
    if (edits === undefined) return next(target, context);
    const changed = mutatedText(readFileSync(fileURLToPath(target), "utf8"), edits);
    return { format: "module", source: stripTypeScriptTypes(changed), shortCircuit: true };
  },
});
