import type { Mutation } from "./mutation.ts";

const FILE = "apiservers/followed-crds.ts";

/** Runs without a freeze that follow one another in one process. */
export const FOLLOWED: readonly Mutation[] = [
  {
    name: "a run without a freeze believes the stamp of a CRD that no earlier one has followed",
    edits: [
      {
        file: "migrator/built-in-evidence.ts",
        from: "lagged: lagged || silent || following.from === undefined,",
        to: "lagged: lagged || silent,",
      },
    ],
  },
  {
    name: "a run without a freeze notes CRDs that it did not ask for",
    edits: [{ file: FILE, from: "crd: { ...metadata, notOlderThan },", to: "crd: metadata," }],
  },
  {
    name: "the wait of a run without a freeze is one for the handlers of other CRDs, too",
    edits: [
      { file: FILE, from: "settled?.note(key, apiServers, now);", to: "void now; settled?.note(key, apiServers);" },
    ],
  },
  {
    name: "a run without a freeze believes what a run with a freeze noted, and the other way round",
    edits: [
      { file: FILE, from: "return `followed ${storageChangeOf(crd).key}`;", to: "return storageChangeOf(crd).key;" },
    ],
  },
];
