import type { Mutation } from "./mutation.ts";

const AGREEMENT = "apiservers/encryption-agreement.ts";
const EVIDENCE = "apiservers/encryption-evidence.ts";
const FACTORY = "controller/run-factory.ts";
const BUILT_IN = "migrator/built-in-evidence.ts";
const KEPT = "migrator/kept-checkpoint.ts";

/** What is wrong about re-encryptions and verifications: what they believe of the keys of API servers, and when. */
export const ENCRYPTION: readonly Mutation[] = [
  {
    name: "a controller re-encrypts without evidence",
    found: { seed: 35, breaks: "migrated: a migration that re-encrypts is Succeeded as another one" },
    edits: [
      {
        file: FACTORY,
        from: "{ encryption: evidence.for(reencryption), force: true }",
        to: "(void evidence, { force: true })",
      },
    ],
  },
  {
    name: "a controller that is to re-encrypt migrates",
    found: { seed: 35, breaks: "migrated: a migration that re-encrypts is Succeeded as another one" },
    edits: [
      {
        file: FACTORY,
        from: '{ ...shared.options, crdMode: "rewrite" as const }',
        to: "shared.options",
      },
    ],
  },
  {
    name: "a controller forgets which configuration is meant",
    found: { seed: 313, breaks: "migrated: a migration is Succeeded, and it means another configuration" },
    edits: [
      {
        file: "controller/unattended-evidence.ts",
        from: "isOptional, expectedConfig, recent });",
        to: "isOptional, recent });",
      },
    ],
  },
  {
    name: "a migration that was asked to re-encrypt while it ran has done so",
    found: { seed: 173, breaks: "migrated: a migration that re-encrypts is Succeeded as another one" },
    edits: [
      {
        file: "controller/run-wish.ts",
        from: "...(isDeepStrictEqual(now.reencryption, done.reencryption) ? []",
        to: "...(done.reencryption === undefined || isDeepStrictEqual(now.reencryption, done.reencryption) ? []",
      },
      {
        file: "controller/run-wish.ts",
        from: "...(now.force && !done.force ? [FORCE_ANNOTATION] : []),",
        to: "...(now.force && !done.force && now.reencryption === undefined ? [FORCE_ANNOTATION] : []),",
      },
    ],
  },
  {
    name: "the configuration of the first API server is that of all",
    found: { seed: 380, breaks: "told: it says re-encrypted with a key, and API servers wrote with another one" },
    edits: [
      {
        file: AGREEMENT,
        from: "if (shown.configHash !== first.configHash) {",
        to: "if (shown.configHash === '') {",
      },
    ],
  },
  {
    name: "API servers that did not answer encrypt as the others",
    survives: "forty samples meet each API server that answers, and the watch of the Leases tells which came and went",
    edits: [
      {
        file: AGREEMENT,
        from: "if (first === undefined || isOneUnheard) {",
        to: "if (first === undefined) {",
      },
    ],
  },
  {
    name: "how API servers encrypt is not looked at again",
    found: { seed: 73, breaks: "told: it says re-encrypted, and an object is encrypted with another key" },
    edits: [
      {
        file: BUILT_IN,
        from: 'encryption: encryption?.agreement ?? "" };',
        to: 'encryption: "" };',
      },
    ],
  },
  {
    name: "a configuration that came back was there all the time",
    found: { seed: 488, breaks: "told: it says re-encrypted, and an object is encrypted with another key" },
    edits: [
      {
        file: "apiservers/encryption-metrics.ts",
        from: "const reloads = this.#reloads.toSorted();",
        to: "const reloads = this.#reloads.slice(this.#reloads.length);",
      },
    ],
  },
  {
    name: "writes with the former key are not waited for, as another key was waited for",
    found: { seed: 41, breaks: "told: it says re-encrypted with a key, and API servers wrote with another one" },
    edits: [
      {
        file: EVIDENCE,
        from: "this.#isSettled &&= this.#agreed?.fingerprint === fingerprint;",
        to: "this.#isSettled ||= this.#agreed !== undefined && this.#agreed.fingerprint !== fingerprint;",
      },
    ],
  },
  {
    name: "a killed re-encryption goes on whatever changed",
    found: { seed: 73, breaks: "told: it says re-encrypted, and an object is encrypted with another key" },
    edits: [
      {
        file: KEPT,
        from: "return kept.foundation === expected.foundation",
        to: "return kept.foundation !== ''",
      },
    ],
  },
  {
    name: "a killed re-encryption goes on although API servers came and went",
    found: { seed: 428, breaks: "told: it says re-encrypted, and an object is encrypted with another key" },
    edits: [
      {
        file: "migrator/kept-progress.ts",
        from: "((await this.#isQuietStill(context))",
        to: "(((await this.#isQuietStill(context)) || true)",
      },
    ],
  },
  {
    name: "any key counts as shown",
    survives: "no API server of the simulation has a KMS v1 plugin",
    edits: [
      {
        file: EVIDENCE,
        from: "this.#kmsV1.showsKey(resource, rewritten);",
        to: "(void resource, void rewritten, true);",
      },
    ],
  },
  {
    name: "verify names nothing of what it repaired",
    found: { seed: 334, breaks: "told: it has fewer objects changed than it wrote" },
    edits: [
      {
        file: "verify/witness.ts",
        from: "if (written.resourceVersion !== sent.resourceVersion) {",
        to: 'if (written.resourceVersion === "") {',
      },
    ],
  },
  {
    name: "verify does not look at the API servers again at its end",
    found: { seed: 674, breaks: "told: it says verified with a key, and API servers wrote with another one" },
    edits: [
      {
        file: "verify/verify-run.ts",
        from: "      await evidence.repeat();\n",
        to: "",
      },
    ],
  },
];
