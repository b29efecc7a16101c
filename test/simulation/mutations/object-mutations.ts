import type { Mutation } from "./mutation.ts";

const REWRITE = "migrator/rewrite/rewrite.ts";
const NAMES_API_ERROR = {
  file: REWRITE,
  from: "import { DoubtfulAnswer } from",
  to: "import { ApiError, DoubtfulAnswer } from",
};
const PASS = "migrator/rewrite/rewrite-pass.ts";
const READER = "migrator/rewrite/page-reader.ts";
const LOOK_AFTER_404 =
  '      case "gone":\n      case "unserved":\n      case "conflict":\n        return this.#look(error);';

/** A webhook that denies chooses the status of the answer: with this, it is believed. */
const BELIEVE_WEBHOOKS = {
  file: "kube/failure.ts",
  from: 'if (isAdmissionDenial(error)) {\n    return "rejected";',
  to: 'if (false) {\n    return "rejected";',
} as const;

/** What is wrong about lists, and about the writes of objects. */
export const OBJECTS: readonly Mutation[] = [
  {
    name: "a list that leaves objects out passes for the whole of it",
    edits: [{ file: READER, from: "      if (missing === 0) {", to: "      if (missing >= 0) {" }],
    survives: "no seed has a gateway that filters lists; regressions/list-that-a-gateway-filters.json has",
  },
  {
    name: "do not rewrite the last page",
    found: { seed: 3, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      {
        file: PASS,
        from: "yield* this.#dueOn(ahead);",
        to: "if (ahead.continueToken !== undefined) yield* this.#dueOn(ahead);",
      },
    ],
  },
  {
    name: "a list ends where its continue token is refused",
    found: { seed: 116, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      {
        file: READER,
        from: "          await this.#afterFailure(error, token);",
        to: "          if (token !== undefined && isTokenFailure(error)) { this.continueToken = undefined; return { items: [], resourceVersion: '1', bytes: 0 }; }\n          await this.#afterFailure(error, token);",
      },
    ],
  },
  {
    name: "the watermark is of before the settle wait",
    found: { seed: 5, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      {
        file: "migrator/crd-run.ts",
        from: "const resume = resumePointOf(this.#known, crd, expected);",
        to: "const resume = resumePointOf(this.#known, crd, expected) ?? { watermark: crd.metadata.resourceVersion };",
      },
    ],
  },
  {
    name: "believe a 404 of an object without a list",
    found: { seed: 468, breaks: "told: its progress has 2 objects gone, and 1 were deleted" },
    edits: [
      {
        file: REWRITE,
        from: LOOK_AFTER_404,
        to: '      case "gone":\n      case "unserved":\n        return { kind: "gone" };\n      case "conflict":\n        return this.#look(error);',
      },
    ],
  },
  {
    name: "believe a 404 of a webhook",
    survives: "a list by name has the last word: that needs both",
    edits: [BELIEVE_WEBHOOKS],
  },
  {
    name: "believe a 404 of an object without a list, also that of a webhook",
    found: { seed: 294, breaks: "told: a run its progress has 1 objects gone, and 0 were deleted" },
    edits: [
      BELIEVE_WEBHOOKS,
      {
        file: REWRITE,
        from: LOOK_AFTER_404,
        to: '      case "gone":\n      case "unserved":\n        return { kind: "gone" };\n      case "conflict":\n        return this.#look(error);',
      },
    ],
  },
  {
    name: "believe a 404 of a list without discovery",
    found: { seed: 380, breaks: "told: a run says that v1 is no longer served, and it was served all the time" },
    edits: [
      {
        file: "migrator/rewrite/unserved-version.ts",
        from: "if (await isUnserved(transport, resource, error, options)) {",
        to: "if (isNotFound(error)) { void isUnserved; void transport; void options;",
      },
      {
        file: "migrator/rewrite/unserved-version.ts",
        from: "import { isUnserved } from",
        to: "import { isNotFound, isUnserved } from",
      },
    ],
  },
  {
    name: "a 409 shows that another client wrote the object",
    survives: "another client writes in the storage version, and a webhook's 409 is a denial: that needs both",
    edits: [
      {
        file: REWRITE,
        from: LOOK_AFTER_404,
        to: '      case "gone":\n      case "unserved":\n        return this.#look(error);\n      case "conflict":\n        return { kind: "newer" };',
      },
    ],
  },
  {
    name: "a 409 shows that another client wrote the object, also that of a webhook",
    found: { seed: 1_575, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      BELIEVE_WEBHOOKS,
      {
        file: REWRITE,
        from: LOOK_AFTER_404,
        to: '      case "gone":\n      case "unserved":\n        return this.#look(error);\n      case "conflict":\n        return { kind: "newer" };',
      },
    ],
  },
  {
    name: "a 410 of a webhook shows that the object is gone",
    found: { seed: 369, breaks: "told: a run its progress has 2 objects gone, and 1 were deleted" },
    edits: [
      BELIEVE_WEBHOOKS,
      {
        file: REWRITE,
        from: 'case "expired":\n        return { kind: "failed", reason: reasonOf(error) };\n      case undefined:\n        throw error;\n    }\n  }\n\n  /**\n   * After a 404',
        to: 'case "expired":\n        return { kind: "gone" };\n      case undefined:\n        throw error;\n    }\n  }\n\n  /**\n   * After a 404',
      },
    ],
  },
  {
    name: "a write whose answer is lost counts as written",
    found: { seed: 24, breaks: "told: a run its progress has 5 objects migrated, and it wrote 4" },
    edits: [
      NAMES_API_ERROR,
      {
        file: REWRITE,
        from: 'case "transient":\n        return this.#afterTransient(error);',
        to: 'case "transient":\n        return error instanceof ApiError ? this.#afterTransient(error) : { kind: "migrated", changed: false };',
      },
    ],
  },
  {
    name: "a write that a busy API server refuses counts as written",
    found: { seed: 31, breaks: "told: a run its progress has 1 objects migrated, and it wrote 0" },
    edits: [
      NAMES_API_ERROR,
      {
        file: REWRITE,
        from: 'case "transient":\n        return this.#afterTransient(error);',
        to: 'case "transient":\n        return error instanceof ApiError ? { kind: "migrated", changed: false } : this.#afterTransient(error);',
      },
    ],
  },
  {
    name: "an answer that is no list is an empty last page",
    found: { seed: 305, breaks: "told: a run says migrated, and an object is encrypted with the former key" },
    edits: [
      {
        file: "kube/listed-page.ts",
        from: 'if (!isOfKind || typeof metadata?.resourceVersion !== "string" || !areItemsRead) {',
        to: "void isOfKind; void areItemsRead; if (false) {",
      },
      { file: "kube/listed-page.ts", from: "return metadata;", to: 'return { resourceVersion: "1", ...metadata };' },
    ],
  },
  {
    name: "objects that failed once are forgotten",
    found: { seed: 58, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      {
        file: PASS,
        from: "await pacer.forEach(this.#setAside.takeAll(), rewrite, waitSignal);",
        to: "this.#setAside.takeAll(); void pacer; void rewrite; void signal;",
      },
    ],
  },
  {
    name: "prune although objects failed",
    found: { seed: 58, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      {
        file: "migrator/crd-run.ts",
        from: "const pruned = this.#tally.counts.failed === 0 ? ",
        to: "const pruned = this.#tally.counts.failed >= 0 ? ",
      },
    ],
  },
  {
    name: "an object is gone where a list that is not complete lacks it",
    survives: "no API server breaks a list by one name off",
    edits: [
      { file: "migrator/rewrite/object-state.ts", from: "if (page.continueToken !== undefined) {", to: "if (false) {" },
    ],
  },
  {
    name: "a request has no time limit",
    found: { seed: 49, breaks: "liveness: a run does not end" },
    edits: [
      {
        file: "kube/transport.ts",
        from: "this.#timeoutMs = options.timeoutMs ?? DEFAULT_REQUEST_TIMEOUT_MS;",
        to: "this.#timeoutMs = 1e12;",
      },
    ],
  },
];
