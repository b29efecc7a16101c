import type { PeerCase, PeerCases } from "./peer-case.ts";

const ERROR = (row: string): string => `TestMigrate_Errors/${row}`;

/** The migrator that Knative's projects run as a Job. Its tests have a fake client; here the API server does what the fake one says. */
export const KNATIVE_CASES = [
  {
    id: "two objects are migrated",
    tests: ["TestMigrate"],
    situation: "A CRD with storedVersions v1alpha1 and v1, storage version v1, and two objects",
    peerDoes: "Sends an empty merge patch for each object in v1, then sets storedVersions to v1",
    ksvmDoes:
      "Rewrites each object with its uid and resourceVersion as preconditions, behind a freeze, prunes and reads back: both objects are v1 in etcd",
  },
  {
    id: "one stored version",
    tests: ["TestMigrate_SingleStoredVersion"],
    situation: "storedVersions is the storage version alone",
    peerDoes: "Writes nothing, and succeeds",
    ksvmDoes: "The same: exit code 0, and neither the CRD nor an object has a new resourceVersion",
  },
  {
    id: "the CRD cannot be read",
    tests: [ERROR("failed to fetch CRD")],
    situation: "The API server does not answer with the CRD",
    peerDoes: "Fails, and writes nothing",
    ksvmDoes: "The same: exit code 1 and one line, for a user who may not read CRDs",
  },
  {
    id: "the objects cannot be listed",
    tests: [ERROR("listing fails")],
    situation: "The list of the objects fails",
    peerDoes: "Fails, and leaves storedVersions as it is",
    ksvmDoes:
      "Waits with the freeze lifted, shows what the API server says, and goes on when the list works again; after `--max-idle` the exit code is 1 " +
      "and storedVersions as before",
  },
  {
    id: "an object cannot be patched",
    tests: [ERROR("patching resource fails")],
    situation: "A patch of an object fails",
    peerDoes: "Stops at this object, fails, and leaves storedVersions as it is",
    ksvmDoes:
      "Rewrites the others, tries this one again at the end, names it, exit code 3; storedVersions stays, so the API server refuses a CRD without " +
      "the old version. Negative control: pruned by hand, that CRD is accepted and the object cannot be read any more",
  },
  {
    id: "the CRD cannot be patched",
    tests: [ERROR("patching definition fails")],
    situation: "The patch of storedVersions fails",
    peerDoes: "Fails, with the objects patched",
    ksvmDoes:
      "The same: exit code 1, the objects are v1 in etcd, storedVersions as before, the freeze lifted. Another run then has the prune left to do",
  },
  {
    id: "an object is not found",
    tests: [ERROR("patching unexisting resource")],
    situation: "The patch of an object is answered with 404",
    peerDoes: "Takes the object for deleted, succeeds, and prunes storedVersions",
    ksvmDoes:
      "Differs on purpose: an admission webhook can answer 404 for an object that is there. Only where a list by its name does not have it either " +
      "is it gone; here it is, so it is named, with exit code 3, and storedVersions stays. An object that is really deleted in mid-run does not " +
      "stop the prune",
  },
] as const satisfies readonly PeerCase[];

export const KNATIVE: PeerCases = {
  peer: {
    name: "Knative's migrator",
    project: "https://github.com/knative/pkg",
    version: "521cb33b33ddfe74529a68ff564450c051287436 (release-1.23)",
    sources: [
      {
        path: "apiextensions/storageversion/migrator_test.go",
        sha256: "d9d0560610fff9a076db9ebd86368a211f7bfb24021e76c94c96817617a5f501",
      },
    ],
    runBy: "test/integration/peer-cases-crds.test.ts",
  },
  cases: KNATIVE_CASES,
};
