import tap from "tap";
import { storageVersionHashOf } from "../../src/api/crd.ts";
import { type ConvergenceTarget, lagReason } from "../../src/apiservers/converge.ts";

const TARGET: ConvergenceTarget = {
  group: "example.com",
  resource: "widgets",
  kind: "Widget",
  storageVersion: "v1",
  requestVersion: "v1",
  isStorageServed: true,
  resourceVersion: "7",
};
const FOUND = { name: "widgets", kind: "Widget", namespaced: true, verbs: [] };
const hash = (version: string): string => storageVersionHashOf("example.com", version, "Widget");

const cases: readonly [title: string, hash: string | undefined, isStorageServed: boolean, lags: boolean][] = [
  ["shows the hash of the storage version", hash("v1"), true, false],
  ["still shows the hash of the old one", hash("v1alpha1"), true, true],
  ["shows no hash", undefined, true, true],
  ["shows no hash for a storage version that is not served", undefined, false, false],
  ["still shows the hash of one that is no longer served", hash("v1"), false, true],
];

for (const [title, storageVersionHash, isStorageServed, lags] of cases) {
  await tap.test(
    `The hash is opaque: lagReason() is ${lags ? "a reason" : "undefined"} where discovery ${title}`,
    async (t) => {
      const found = storageVersionHash === undefined ? FOUND : { ...FOUND, storageVersionHash };
      t.equal(lagReason({ ...TARGET, isStorageServed }, found) !== undefined, lags);
    },
  );
}

await tap.test("lagReason() is a reason where discovery does not list the resource", async (t) => {
  t.match(lagReason(TARGET, undefined), /does not list "widgets"/);
});
