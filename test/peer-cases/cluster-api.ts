import type { PeerCase, PeerCases } from "./peer-case.ts";

const ROW = (row: string): string => `TestReconcile/${row}`;
const BOTH = "run both StorageVersionMigration and CleanupManagedFields";

/** crdmigrator of Cluster API: each row of its test takes one CRD through the four files t1 to t4, or ends on the way. */
export const CLUSTER_API_CASES = [
  {
    id: "the whole life of a version",
    tests: [ROW(`${BOTH} with cache`), ROW(`${BOTH} without cache`)],
    situation:
      "t1 has v1beta1 alone; t2 adds v1beta2 as the storage version; t3 no longer serves v1beta1; t4 removes it. Objects are applied in t1 and in " +
      "t2, one of them by a client of each version",
    peerDoes:
      "At t2 it patches every object and sets storedVersions to v1beta2; at t3 it removes the managedFields entries of versions that are not " +
      "served, and where none is left adds one that owns `metadata.name`; t4 is accepted and every object can be read and applied. The " +
      "generation that it has seen stands in an annotation of the CRD",
    ksvmDoes:
      "The same in etcd, with `--managed-fields=convert`: the entries are kept and name the storage version, so that their managers go on owning " +
      "their fields, and this is done with the rewrite at t2. Freezes the CRD while it works, and leaves no annotation of a generation. Keeps no " +
      "cache of objects, so both rows are one",
  },
  {
    id: "objects are patched by their status",
    tests: [ROW(`${BOTH} with cache (using status)`), ROW(`${BOTH} without cache (using status)`)],
    situation: "The same, with patches of the status, which the admission of many operators does not look at",
    peerDoes: "Patches the status of every object; storedVersions becomes the storage version",
    ksvmDoes:
      "`--via=status` does so, shown where admission rejects every update of the objects: without the flag each object is named, the exit code is " +
      "3 and storedVersions stays. A conversion of managedFields cannot go that way, and is refused with it",
  },
  {
    id: "the storage migration is left out",
    tests: [ROW("run only CleanupManagedFields with cache"), ROW("run only CleanupManagedFields without cache")],
    situation: "Only managedFields are cleaned up: t1 to t4 without a migration",
    peerDoes: "storedVersions keeps both versions, and the API server refuses t4",
    ksvmDoes:
      "Has no such mode: entries are converted by the write that migrates. Without a run the API server refuses t4 as well, and `ksvm check` says so " +
      "before it is applied, with exit code 4",
  },
  {
    id: "managedFields are left as they are",
    tests: [ROW("run only StorageVersionMigration with cache"), ROW("run only StorageVersionMigration without cache")],
    situation: "Only the storage is migrated: the managedFields of v1beta1 stay",
    peerDoes:
      "At t4 an apply fails for each object that has an entry of v1beta1, as the API server cannot convert to that version",
    ksvmDoes:
      "The same by default: a run changes nothing that a user sees, managedFields included. `ksvm migrate --managed-fields=convert` while the " +
      "version is still in the CRD is the way out",
  },
  {
    id: "everything is left out",
    tests: [ROW("skip all")],
    situation: "Both phases are skipped at t1",
    peerDoes: "Does not start: storedVersions stays, and the CRD gets no annotation",
    ksvmDoes:
      "Migrates nothing that nothing asks for. With `--dry-run`, the nearest to it, a stale CRD and its objects stay as they are to the byte, and " +
      "no annotation, policy or Lease is left",
  },
] as const satisfies readonly PeerCase[];

export const CLUSTER_API: PeerCases = {
  peer: {
    name: "Cluster API's crdmigrator",
    project: "https://github.com/kubernetes-sigs/cluster-api",
    version: "v1.14.0",
    sources: [
      {
        path: "controllers/crdmigrator/crd_migrator_test.go",
        sha256: "091de6101063a29f429a4ccacdb2576aa679c52c55bff4131ac086700cf8431e",
      },
    ],
    runBy: "test/integration/peer-cases-crds.test.ts",
  },
  cases: CLUSTER_API_CASES,
};
