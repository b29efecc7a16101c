import type { Mutation } from "./mutation.ts";

const FILE = "apiservers/followed-crds.ts";

/** Runs without a freeze that follow one another in one process. */
export const FOLLOWED: readonly Mutation[] = [
  {
    name: "a run without a freeze believes the stamp of a CRD that no earlier one has followed",
    found: {
      seed: 224,
      breaks: "migrated: a migration is Succeeded, and an object is not stored in the storage version",
    },
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
    found: {
      seed: 209,
      breaks: "S1: objects in a version that another client pruned, since a migration of ksvm is Succeeded",
    },
    edits: [{ file: FILE, from: "crd: { ...metadata, notOlderThan },", to: "crd: metadata," }],
  },
  {
    name: "the wait of a run without a freeze is one for the handlers of other CRDs, too",
    found: {
      seed: 5_322,
      breaks: "migrated: a migration is Succeeded, and an object is not stored in the storage version",
    },
    edits: [
      { file: FILE, from: "settled?.note(key, apiServers, now);", to: "void now; settled?.note(key, apiServers);" },
    ],
  },
];
