import type { Edit, Mutation } from "./mutation.ts";

const WRITE = "migrator/rewrite/no-op-write.ts";
const REWRITE = "migrator/rewrite/rewrite.ts";
const BUILT_IN = "migrator/built-in-run.ts";
const EVIDENCE = "migrator/built-in-evidence.ts";
const BACKOFF = "retry/backoff.ts";
const PACER = "retry/pacer.ts";
const CHECKPOINT = "migrator/rewrite/checkpoint.ts";
const METADATA = "metadata: { name, ...scope, uid, resourceVersion },";
const UNSEEN_CRD: Edit = {
  file: "migrator/listed-storage.ts",
  from: 'if (crdName === undefined && !resource.group.includes(".")) {',
  to: "if (crdName === undefined) {",
};

/** What is wrong about the objects as users see them, about built-in resources and keys, about what is told, and about the load. */
export const ENGINE: readonly Mutation[] = [
  {
    name: "write an object without its uid and resourceVersion",
    edits: [
      { file: WRITE, from: METADATA, to: "metadata: { name, ...scope }, ...(void uid, void resourceVersion, {})," },
    ],
    found: { seed: 1, breaks: "changed: a write by ksvm creates an object" },
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
    found: { seed: 1, breaks: "changed: a write by ksvm changes labels" },
  },
  {
    name: "a write that is sent back in the place of an answer shows an object that is current",
    edits: [
      {
        file: WRITE,
        from: "if (!isOfApiServer(body)) throw",
        to: "void isOfApiServer; if (false) throw",
      },
    ],
    found: { seed: 305, breaks: "told: it says migrated, and an object is encrypted with another key" },
  },
  {
    name: "objects of a CRD that is created again during a run are migrated without a freeze and a prune",
    edits: [{ file: "migrator/migrate.ts", from: 'builtIn.group.includes(".") &&', to: "false &&" }, UNSEEN_CRD],
    found: { seed: 2_526, breaks: "told: it says migrated, and not of which generation of the CRD" },
  },
  {
    name: "objects of a CRD that is created again during a run are written without a look at it",
    edits: [UNSEEN_CRD],
    survives:
      "one seed of more than 200,000 meets the moment (260895); regressions/crd-that-is-there-again-before-a-write.json does",
  },
  {
    name: "take all managedFields off each object",
    edits: [
      { file: WRITE, from: METADATA, to: "metadata: { name, ...scope, uid, resourceVersion, managedFields: [{}] }," },
      { file: WRITE, from: "contentType: options.patchType ?? APPLY_PATCH,", to: "contentType: MERGE_PATCH," },
      {
        file: WRITE,
        from: "ACCEPT_METADATA, APPLY_PATCH, apiVersionOf",
        to: "ACCEPT_METADATA, MERGE_PATCH, apiVersionOf",
      },
    ],
    found: { seed: 1, breaks: "changed: a write by ksvm changes managedFields" },
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
    found: { seed: 60, breaks: "changed: a write by ksvm changes managedFields" },
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
    found: { seed: 58, breaks: "told: its progress has more objects migrated than it wrote" },
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
    found: { seed: 1, breaks: "told: its progress has more objects migrated than it wrote" },
  },
  {
    name: "a built-in resource is migrated without a last look",
    edits: [{ file: BUILT_IN, from: "    await evidence.repeat();\n", to: "" }],
    found: {
      seed: 229,
      breaks: "told: it says re-encrypted with a key that API servers did not write with at the end",
    },
  },
  {
    name: "API servers that show different hashes agree",
    edits: [{ file: EVIDENCE, from: "if (found === expected) {", to: "if (found !== '' || expected !== '') {" }],
    survives: "each hash that one shows is noted as well, and two of them are asked again",
  },
  {
    name: "what changed during a run of a built-in resource does not count",
    edits: [
      {
        file: "migrator/foundation.ts",
        from: "return changes.find(([field]) => before[field] !== after[field])?.[1];",
        to: "void before; void after; void changes; return undefined;",
      },
    ],
    survives:
      "an API server of another release shows as a lag as well, unless all were replaced between the last write and the last look",
  },
  {
    name: "a run of a built-in resource does not wait for late writes",
    edits: [{ file: EVIDENCE, from: "    await settle(this.#context, {", to: "    void settle; void ({" }],
    survives:
      "an API server is replaced by one of another release when it ends, with what it held: only one that hangs writes late",
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
    survives:
      "it takes a rotation of the key between a run that was not forced and crashed, and one that is: not met in 190 seeds",
  },
  {
    name: "a result does not say of which generation of the CRD it is",
    edits: [
      {
        file: "migrator/prune.ts",
        from: ", crd: specKeyOf(crd.metadata), clearsDoubt",
        to: ", ...(void specKeyOf, { crd: undefined as never }), clearsDoubt",
      },
    ],
    found: { seed: 1, breaks: "told: it says migrated, and not of which generation of the CRD" },
  },
  {
    name: "a run that is forced finds nothing to do",
    edits: [
      {
        file: "migrator/migrate-crd.ts",
        from: "return force || convertsFields === true || !isClean(crd);",
        to: "void [convertsFields, force]; return !isClean(crd);",
      },
    ],
    found: { seed: 9, breaks: "told: it says nothing-to-do, and it was forced" },
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
    found: { seed: 34, breaks: "load: a write is sent again before Retry-After is over" },
  },
  {
    name: "do not back off",
    edits: [{ file: BACKOFF, from: "return floor + random * ceiling;", to: "void ceiling; return floor + random;" }],
    found: { seed: 4, breaks: "load: more than 800 requests in a minute fail" },
  },
  {
    name: "write again without a pause what the authorizer refuses",
    edits: [
      {
        file: REWRITE,
        from: "await pacer.aside(() => clock.sleep(ms, waitSignal), waitSignal);",
        to: "void [clock, ms, pacer, waitSignal];",
      },
    ],
    found: { seed: 36, breaks: "load: more than 800 requests in a minute fail" },
  },
  {
    name: "open watches again without a pause",
    edits: [
      {
        file: "kube/watch-attempts.ts",
        from: "await this.#clock.sleep(pauseMs, signal).catch(() => undefined);",
        to: "await this.#clock.sleep(pauseMs * 0, signal).catch(() => undefined);",
      },
    ],
    found: { seed: 27, breaks: "load: more than 800 requests in a minute fail" },
  },
  {
    name: "begin all objects of a page at once",
    edits: [
      {
        file: PACER,
        from: "return this.#options.limiter?.limit ?? this.#options.maxInFlight;",
        to: "return Number.POSITIVE_INFINITY;",
      },
    ],
    found: { seed: 5, breaks: "load: a run writes more objects at a time than --max-in-flight" },
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
    found: { seed: 7, breaks: "load: more than 300 times are pending" },
  },
  {
    name: "look for the in-tree migrator without a pause",
    edits: [
      { file: "migrator/beside-in-tree.ts", from: "const LOOK_EVERY_MS = 5_000;", to: "const LOOK_EVERY_MS = 20;" },
    ],
    found: { seed: 1, breaks: "load: more than 1,450 requests in a minute are about no object" },
  },
  {
    name: "say that a freeze is lifted before it is",
    edits: [
      {
        file: "freeze/freeze-hold.ts",
        from: "if (await unfreeze({ ...releasing, signal }, crdName, owner, options)) {\n      onLifted();\n    }",
        to: "onLifted();\n    await unfreeze({ ...releasing, signal }, crdName, owner, options);",
      },
    ],
    found: { seed: 1, breaks: "told: it says unfrozen, and its freeze is in place" },
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
        from: "return Math.max(pollMs, Math.min(askedPauseMs(cause), leftMs));",
        to: "void leftMs; void askedPauseMs; void cause; return pollMs;",
      },
    ],
    survives:
      "it doubles the requests of a minute, and mostly stays within the bounds. test/apiservers/server-roll.test.ts and ask-all.test.ts find it",
  },
  {
    name: "an object that waited for its turn is sent once more after the attempt was broken off",
    survives: "each write has to be held for half a minute while many objects wait: a plan in regressions/ finds it",
    edits: [
      {
        file: "retry/pacer.ts",
        from: "await this.#enter();\n    signal.throwIfAborted();",
        to: "await this.#enter();\n    void signal;",
      },
    ],
  },
  {
    name: "list page after page, however many of those before them are under way",
    found: { seed: 338, breaks: "load: a run has 1,001 requests for objects that fail in a minute" },
    edits: [{ file: "migrator/rewrite/rewrite-pass.ts", from: "await this.#open.room();", to: "" }],
  },
  {
    name: "ask an API server that is behind four times a second, for as long as it is",
    survives:
      "it takes several API servers that are behind; regressions/asks-an-api-server-that-is-behind.json has them",
    edits: [{ file: "apiservers/ask-all.ts", from: "const LATE_POLL_MS = 1_000;", to: "const LATE_POLL_MS = 250;" }],
  },
];
