import type { PeerCase, PeerCases } from "./peer-case.ts";

const SYNC = (row: string): string => `TestSync/${row}`;
const RUNNER = (row: string): string => `TestCustomResourceController_Sync/${row}`;
const MIGRATABLE = (row: string): string => `TestIsResourceMigratable/${row}`;
const LIST = (row: string): string => `TestRVSync/${row}`;

/** The controllers of Kubernetes' own migrator. Their tests have fake clients; here the API server does what the fake ones say. */
export const IN_TREE_CASES = [
  {
    id: "objects written since the list",
    tests: [SYNC("Successful migration")],
    situation: "Of three objects one has a resourceVersion beyond that of the list that the migration began with",
    peerDoes: "Applies the other two with uid and resourceVersion, skips that one, and succeeds",
    ksvmDoes:
      "The same: an object created in mid-run is v1 in etcd and keeps its resourceVersion, all others are rewritten. The list that counts is the " +
      "first one behind a proven freeze, after the API servers agree and `--settle`, since a write from before may land later",
  },
  {
    id: "the migration is gone",
    tests: [SYNC("SVM not found"), LIST("SVM not found")],
    situation: "The migration was deleted before its turn",
    peerDoes: "Does nothing",
    ksvmDoes: "The same: the CRD stays as it is, and the next migration has its turn",
  },
  {
    id: "the migration has ended",
    tests: [SYNC("SVM already succeeded"), LIST("SVM already succeeded"), LIST("SVM already failed")],
    situation: "The status of the migration says Succeeded, or Failed",
    peerDoes: "Does nothing",
    ksvmDoes:
      "The same. A Succeeded that another client wrote leads to no prune: storedVersions and the objects stay as they are",
  },
  {
    id: "the cache is behind",
    tests: [SYNC("GC cache is not up to date")],
    situation: "The cache of the garbage collector is older than the list",
    peerDoes: "Tries again later",
    ksvmDoes: "Reads lists that are consistent with etcd",
    notApplicable: "ksvm has no cache of objects",
  },
  {
    id: "the resource does not exist",
    tests: [SYNC("Resource not in GC"), MIGRATABLE("unknown resource")],
    situation: "Nothing serves the resource",
    peerDoes: "The migration is Failed once it is a minute old; a resource that discovery does not list is an error",
    ksvmDoes:
      "The migration is Failed with the reason ResourceNotFound; `ksvm migrate` ends with exit code 1 and names the resource",
  },
  {
    id: "an object cannot be written",
    tests: [SYNC("Fatal patch error fails migration"), RUNNER("Migration failed: CRD condition updated")],
    situation: "The API server refuses the write of an object",
    peerDoes:
      "Stops at this object; the migration is Failed. **storedVersions is reduced to the storage version all the same** " +
      "([report](upstream/prune-after-failure.md))",
    ksvmDoes:
      "Differs on purpose: rewrites the others, the migration is Failed and names the object, and storedVersions stays, so that the API server " +
      "refuses a CRD without the old version. Negative control: after the peer's prune that CRD is accepted, and the object cannot be read any more",
  },
  {
    id: "a write is answered with a conflict",
    tests: [SYNC("Conflict on patch is ignored")],
    situation: "The write of one of two objects is answered with 409",
    peerDoes: "Takes the object for written by another client, or deleted; the migration succeeds",
    ksvmDoes:
      "Differs on purpose: a conflict of the API server is read again, and only a resourceVersion beyond the mark of the run proves a write. A " +
      "webhook that denies with 409 proves nothing: the migration is Failed and names the object, which is v1alpha1 in etcd. Negative control: " +
      "pruned as after a success, it cannot be read any more",
  },
  {
    id: "a write may be tried again",
    tests: [SYNC("Retriable patch error is returned directly")],
    situation: "The write of an object is answered with 429",
    peerDoes: "Begins again with all objects, later",
    ksvmDoes:
      "Tries this object again, here at the end of the run, as a webhook denied it once; the others are not written twice. It succeeds",
  },
  {
    id: "resourceVersions that have no order",
    tests: [
      SYNC("Incomparable resource version for gc fails migration"),
      SYNC("Incomparable resource version for object fails migration"),
      LIST("Invalid RV returned"),
    ],
    situation: "A resourceVersion is no number",
    peerDoes: "The migration is Failed",
    ksvmDoes:
      "Skips no object by its resourceVersion where they are opaque, and rewrites all of them (`test/integration/reencrypt-aggregated.test.ts`)",
    notApplicable: "the API server of custom resources answers with numbers alone",
  },
  {
    id: "there is no CRD",
    tests: [RUNNER("Initial sync: CRD missing")],
    situation: "The resource has no CRD, as a built-in one",
    peerDoes: "The migration is Running, and no CRD is written to",
    ksvmDoes:
      "The same for a built-in resource: no freeze and no prune; it is Succeeded once every API server shows one storage version, before and after",
  },
  {
    id: "a migration begins and runs",
    tests: [RUNNER("Initial sync: CRD exists"), RUNNER("Migration running (No-op)")],
    situation: "The controller begins a migration of a CRD, and looks at it again while it runs",
    peerDoes:
      "Sets the condition `StorageMigrating` of the CRD to True and that of the migration to Running, once; nothing keeps the storage version as it is",
    ksvmDoes:
      "Sets Running, and freezes the CRD: until the migration ends, the API server denies a change of the storage version. Leaves the condition StorageMigrating to its owner. " +
      "A write to the migration does not begin it again",
  },
  {
    id: "a migration succeeds",
    tests: [
      RUNNER("Migration succeeded: Update CRD stored versions"),
      RUNNER("Cleanup admission updates SVM condition"),
      LIST("Successful RV acquisition"),
    ],
    situation: "All objects are written",
    peerDoes:
      "Has the resourceVersion of its list in the status, sets storedVersions to the storage version, StorageMigrating to False, Succeeded to True and Running to False",
    ksvmDoes:
      "The same in its own API: `status.watermark`, storedVersions, Succeeded and Running; the freeze is lifted and nothing is left on the CRD",
  },
  {
    id: "the CRD changes in mid-run",
    tests: [RUNNER("Migration succeeded: CRD generation mismatch (No update)")],
    situation: "The generation of the CRD is another one at the end",
    peerDoes:
      "The migration succeeds, and the old versions stay in storedVersions, for good unless another migration follows; where an earlier migration " +
      "succeeded they do not stay ([report](upstream/prune-after-failure.md))",
    ksvmDoes:
      "Differs on purpose: a change of the storage version is denied, and after any other change of the versions the run repeats its proofs, waits, lists and " +
      "rewrites again, so that it ends with every object in v1 and storedVersions pruned",
  },
  {
    id: "the older migration goes first",
    tests: [RUNNER("Promote older SVM first"), LIST("Migration not active"), LIST("SVM has no CRD condition")],
    situation: "Two migrations of one resource wait",
    peerDoes: "The older one is Running; nothing is read or written for the other one before its turn",
    ksvmDoes: "The same: the other one is Pending without a watermark, then Succeeded with the reason NothingToDo",
  },
  {
    id: "verbs of a resource",
    tests: [
      MIGRATABLE("migratable resource"),
      MIGRATABLE("non-updatable resource"),
      MIGRATABLE("non-patchable resource"),
      MIGRATABLE("non-listable resource"),
      LIST("Resource not migratable"),
    ],
    situation: "A resource that cannot be listed, updated or patched",
    peerDoes: "Migrates what has the verbs list, update and patch; otherwise the migration is Failed",
    ksvmDoes:
      "The same: configmaps are migrated; componentstatuses, which can only be read, and tokenreviews, which can only be created, are Failed with the " +
      "reason ResourceNotMigratable",
  },
  {
    id: "verbs that differ between versions",
    tests: [MIGRATABLE("multiple versions"), MIGRATABLE("multiple versions and groups")],
    situation: "The resource can be listed in another version, or another group, than the one that is asked for",
    peerDoes: "Looks at the version and group that is asked for alone",
    ksvmDoes: "The same, in discovery of that group and version",
    notApplicable:
      "an API server serves a resource with the same verbs in every version; `test/resources/migratable.test.ts` has such answers",
  },
  {
    id: "the list fails",
    tests: [LIST("Metadata list error")],
    situation: "The list of the objects fails",
    peerDoes: "Tries again later",
    ksvmDoes: "Waits and says why (the migration is Waiting, WaitingForWebhook), then goes on and succeeds",
  },
  {
    id: "the status is filled in by someone else",
    tests: [LIST("RV already set")],
    situation: "The status of a migration that has not begun has a resourceVersion",
    peerDoes: "Leaves it, and takes what is beyond it for written",
    ksvmDoes:
      "Differs on purpose: users can write it, so a watermark that no run of this migration signed is not believed. With 0, and with a number beyond every " +
      "object, each object is rewritten",
  },
] as const satisfies readonly PeerCase[];

const FOLDER = "pkg/controller/storageversionmigrator";

export const IN_TREE: PeerCases = {
  peer: {
    name: "Kubernetes' own migrator",
    project: "https://github.com/kubernetes/kubernetes",
    version: "v1.36.3",
    sources: [
      {
        path: `${FOLDER}/migrationrunner_test.go`,
        sha256: "d81bded1a8ce009eb2af6b4fd2c6166ad09df55d27f88b5af1085446903debe8",
      },
      {
        path: `${FOLDER}/resourceversion_test.go`,
        sha256: "2a9dd048277882d43c4371de0f68d04bb15c3d59daad55027e35cb858c25e2ac",
      },
      {
        path: `${FOLDER}/storageversionmigrator_test.go`,
        sha256: "5b59f875a471c715ee6ae27d791efecb7f3dad0f796d062fdfeb12c6913c3983",
      },
    ],
    runBy: "test/integration/peer-cases-controller.test.ts",
  },
  cases: IN_TREE_CASES,
};
