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
  { name: "resume at the checkpoint of a CRD that was deleted", edits: [ANOTHER_UID] },
  { name: "resume at the checkpoint of another generation", edits: [ANOTHER_GENERATION] },
  {
    name: "resume at the checkpoint of a CRD that was deleted, and of another generation",
    edits: [ANOTHER_UID, ANOTHER_GENERATION],
  },
  {
    name: "resume at a checkpoint that was written by hand",
    edits: [
      {
        file: CHECKPOINT,
        from: "return digest === digestOf(fieldsOf(fields)) ? fieldsOf(fields) : undefined;",
        to: "void digest; return fieldsOf(fields);",
      },
    ],
  },
  {
    name: "resume behind objects that failed",
    edits: [
      {
        file: PASS,
        from: "const isMissed = this.#options.tally.counts.failed > 0 || this.#setAside.size > 0;",
        to: "const isMissed = false;",
      },
    ],
  },
  {
    name: "resume at a watermark that etcd is not at, as after a restore",
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
    edits: [
      {
        file: "migrator/crd-run.ts",
        from: "const onDifference = (): Promise<void> => lease.voidCheckpoint(this.#context);",
        to: "const onDifference = async (): Promise<void> => undefined;",
      },
    ],
  },
];
