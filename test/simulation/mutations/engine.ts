import type { Mutation } from "./mutation.ts";

const WRITE = "migrator/rewrite/no-op-write.ts";
const REWRITE = "migrator/rewrite/rewrite.ts";
const BUILT_IN = "migrator/built-in-run.ts";
const EVIDENCE = "migrator/built-in-evidence.ts";
const BACKOFF = "retry/backoff.ts";
const PACER = "retry/pacer.ts";
const CHECKPOINT = "migrator/rewrite/checkpoint.ts";
const METADATA = "metadata: { name, ...scope, uid, resourceVersion },";

/** What is wrong about the objects as users see them, about built-in resources and keys, about what is told, and about the load. */
export const ENGINE: readonly Mutation[] = [
  {
    name: "write an object without its uid and resourceVersion",
    edits: [
      { file: WRITE, from: METADATA, to: "metadata: { name, ...scope }, ...(void uid, void resourceVersion, {})," },
    ],
  },
  {
    name: "leave a label on each object",
    edits: [
      {
        file: WRITE,
        from: METADATA,
        to: 'metadata: { name, ...scope, uid, resourceVersion, labels: { ksvm: "yes" } },',
      },
    ],
  },
  {
    name: "apply an object without managedFields",
    edits: [
      {
        file: REWRITE,
        from: "return hasManagedFields ? APPLY_PATCH : MERGE_PATCH;",
        to: "void hasManagedFields; return APPLY_PATCH;",
      },
    ],
  },
  {
    name: "count an object that failed as migrated",
    edits: [
      {
        file: "migrator/rewrite/counts.ts",
        from: "this.counts[outcome.kind]++;",
        to: 'this.counts[outcome.kind === "failed" ? "migrated" : outcome.kind]++;',
      },
    ],
  },
  {
    name: "count an object that another client wrote as migrated",
    edits: [
      {
        file: "migrator/rewrite/counts.ts",
        from: "this.counts[outcome.kind]++;",
        to: 'this.counts[outcome.kind === "newer" ? "migrated" : outcome.kind]++;',
      },
    ],
  },
  {
    name: "a built-in resource is migrated without a last look",
    edits: [{ file: BUILT_IN, from: "    await evidence.repeat();\n", to: "" }],
  },
  {
    name: "API servers that show different hashes agree",
    edits: [{ file: EVIDENCE, from: "if (found === expected) {", to: "if (found !== '' || expected !== '') {" }],
  },
  {
    name: "what changed during a run of a built-in resource does not count",
    edits: [
      {
        file: EVIDENCE,
        from: "return changes.find(([field]) => before[field] !== after[field])?.[1];",
        to: "void before; void after; void changes; return undefined;",
      },
    ],
  },
  {
    name: "a run of a built-in resource does not wait for late writes",
    edits: [{ file: EVIDENCE, from: "    await settle(this.#context, {", to: "    void settle; void ({" }],
  },
  {
    name: "a forced run leaves out what was written since its checkpoint of an unforced one",
    edits: [
      {
        file: CHECKPOINT,
        from: "return run.options.force ? `${run.purpose}, forced, by ${run.identity}` : run.purpose;",
        to: "return run.purpose;",
      },
    ],
  },
  {
    name: "a run that is forced finds nothing to do",
    edits: [
      {
        file: "migrator/migrate-crd.ts",
        from: "return options.force || !isClean(crd);",
        to: "void options; return !isClean(crd);",
      },
    ],
  },
  {
    name: "ignore Retry-After",
    edits: [
      {
        file: BACKOFF,
        from: "return floor + random * ceiling;",
        to: "void floor; return random * ceiling;",
      },
    ],
  },
  {
    name: "do not back off",
    edits: [{ file: BACKOFF, from: "return floor + random * ceiling;", to: "void ceiling; return floor + random;" }],
  },
  {
    name: "begin all objects of a page at once",
    edits: [
      {
        file: PACER,
        from: "return this.#options.limiter?.limit ?? this.#options.maxInFlight;",
        to: "return Number.POSITIVE_INFINITY;",
      },
      {
        file: PACER,
        from: "const workers = Math.min(this.#options.maxInFlight, items.length);",
        to: "const workers = items.length;",
      },
    ],
  },
  {
    name: "the deadline of a request outlives it",
    edits: [
      {
        file: "kube/transport.ts",
        from: "    } finally {\n      deadline.end();\n      ended?.();\n    }",
        to: "    } finally {\n      ended?.();\n    }",
      },
    ],
  },
  {
    name: "look for the in-tree migrator without a pause",
    edits: [
      { file: "migrator/beside-in-tree.ts", from: "const LOOK_EVERY_MS = 2_000;", to: "const LOOK_EVERY_MS = 20;" },
    ],
  },
  {
    name: "say that a freeze is lifted before it is",
    edits: [
      {
        file: "freeze/freeze-hold.ts",
        from: "if (await unfreeze({ ...releasing, signal }, crdName, owner)) {\n      onLifted();\n    }",
        to: "onLifted();\n    await unfreeze({ ...releasing, signal }, crdName, owner);",
      },
    ],
  },
  {
    name: "open connection after connection to API servers that are busy",
    edits: [
      {
        file: "apiservers/server-roll.ts",
        from: "    if (this.#failure !== undefined) {",
        to: "    if (this.#failure === 0) {",
      },
      {
        file: "apiservers/ask-all.ts",
        from: "return Math.max(POLL_MS, Math.min(askedPauseMs(cause), leftMs));",
        to: "void leftMs; void askedPauseMs; void cause; return POLL_MS;",
      },
    ],
  },
];
