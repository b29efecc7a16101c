import { readFileSync } from "node:fs";
import { registerHooks, stripTypeScriptTypes } from "node:module";
import { fileURLToPath } from "node:url";
import { MUTATIONS } from "./mutations.ts";

// Loaded before everything else (node --import): has one file of src/ read as a mutation changes it. MUTATION names it.

const SRC = new URL("../../src/", import.meta.url);
const wanted = process.env["MUTATION"];
const mutation = MUTATIONS.find(({ name }) => name === wanted);
if (mutation === undefined) throw new Error(`there is no mutation "${wanted}"`);
const url = new URL(mutation.file, SRC).href;

registerHooks({
  load(target, context, next) {
    if (target !== url) return next(target, context);
    const source = readFileSync(fileURLToPath(url), "utf8");
    if (source.split(mutation.from).length !== 2) {
      throw new Error(
        `mutation "${mutation.name}": its text stands ${source.split(mutation.from).length - 1} times in ${mutation.file}`,
      );
    }
    const changed = stripTypeScriptTypes(source.replace(mutation.from, () => mutation.to));
    return { format: "module", source: changed, shortCircuit: true };
  },
});
