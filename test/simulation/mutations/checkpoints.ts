import type { Mutation } from "./mutation.ts";

const CHECKPOINT = "migrator/rewrite/checkpoint.ts";
const PASS = "migrator/rewrite/rewrite-pass.ts";
const ANOTHER_UID = {
  file: CHECKPOINT,
  from: "checkpoint?.crdUid === crd.metadata.uid &&",
  to: "checkpoint !== undefined &&",
};
const ANOTHER_GENERATION = { file: CHECKPOINT, from: "checkpoint.generation === crd.metadata.generation &&", to: "" };

/** What is wrong about where a run goes on. */
export const CHECKPOINTS: readonly Mutation[] = [
  {
    name: "resume at the checkpoint of a CRD that was deleted",
    survives: "a CRD that was created again has no key by which its checkpoint could be verified",
    edits: [ANOTHER_UID],
  },
  {
    name: "resume at the checkpoint of another generation",
    found: { seed: 164, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [ANOTHER_GENERATION],
  },
  {
    name: "resume at the checkpoint of a CRD that was deleted, and of another generation",
    found: { seed: 164, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [ANOTHER_UID, ANOTHER_GENERATION],
  },
  {
    name: "resume at a checkpoint that another client wrote",
    found: { seed: 496, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      {
        file: "migrator/checkpoint-key.ts",
        from: "const isSigned = checkpoint !== undefined && publicKey !== undefined && isSignedBy(checkpoint, publicKey);",
        to: "void isSignedBy; const isSigned = checkpoint !== undefined && publicKey !== undefined;",
      },
    ],
  },
  {
    name: "resume behind objects that failed",
    found: { seed: 478, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      {
        file: PASS,
        from: "const isMissed = counts.failed > 0 || kept > 0 || this.#setAside.size > 0;",
        to: "const isMissed = false;",
      },
    ],
  },
  {
    name: "a page is done as soon as its objects were begun",
    found: { seed: 338, breaks: "load: more than 1,000 writes of objects in a minute fail" },
    edits: [{ file: "migrator/rewrite/open-pages.ts", from: "    this.#underWay++;", to: "    void 0;" }],
  },
  {
    name: "a page is done before the one before it",
    found: { seed: 13, breaks: "lost: a run hangs" },
    edits: [
      {
        file: "migrator/rewrite/open-pages.ts",
        from: "Promise.all([this.#last, page.closed])",
        to: "Promise.all([undefined, page.closed])",
      },
    ],
  },
  {
    name: "keep the token of the page that is read ahead",
    found: { seed: 1_660, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      {
        file: PASS,
        from: "[this.#point(page), this.#position.copy()]",
        to: "[this.#point({ ...page, continueToken: this.#reader.continueToken, following: undefined }), this.#position.copy()]",
      },
    ],
  },
  {
    name: "resume at a watermark that etcd is not at, as after a restore",
    survives: "a Lease that went back in time is lost, and its checkpoint is of the backup as well",
    edits: [
      {
        file: PASS,
        from: "if (resume !== undefined && order !== undefined && order >= 0) {",
        to: "if (resume !== undefined && order !== undefined) {",
      },
    ],
  },
  {
    name: "resume at a checkpoint that became void",
    survives: "an API server that showed a storage version never shows an older one again",
    edits: [
      {
        file: "migrator/migrate-crd.ts",
        from: "if (error instanceof StartAgain || lease.isVoid) {",
        to: "void StartAgain; if (false) {",
      },
    ],
  },
  {
    name: "keep the checkpoint where an API server showed another storage version",
    survives: "an API server that showed a storage version never shows an older one again",
    edits: [
      {
        file: "migrator/crd-run.ts",
        from: "restarts, () => this.#forget());",
        to: "restarts, async () => undefined);",
      },
    ],
  },
];
