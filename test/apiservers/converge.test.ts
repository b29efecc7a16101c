import tap from "tap";
import type { ApiClient } from "../../src/kube/client.ts";
import type { ApiRequest } from "../../src/kube/api-request.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { storageVersionHashOf } from "../../src/api/crd.ts";
import {
  type ConvergenceTarget,
  type FirstLook,
  convergenceCheck,
  knownAtFirst,
  lagReason,
} from "../../src/apiservers/converge.ts";

const KNOWN = { name: "widgets.example.com", uid: "u", resourceVersion: "7", generation: 3 };
const TARGET: ConvergenceTarget = {
  group: "example.com",
  resource: "widgets",
  kind: "Widget",
  storageVersion: "v1",
  requestVersion: "v1",
  isStorageServed: true,
  crd: KNOWN,
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

const { signal } = new AbortController();

/**
 * A stand-in for an API server whose watch cache gets from one state of the CRD to the next while it is asked, which no real one does at a moment that a
 * test chooses.
 * @param atOnce what it has when it is asked for any
 */
function serverWith(atOnce: () => Partial<typeof KNOWN> | undefined, version = "v1") {
  const asked: (string | undefined)[] = [];
  const resources = [{ ...FOUND, storageVersionHash: hash(version) }];
  const discovery = { kind: "APIResourceList", groupVersion: "example.com/v1", resources };
  const request = async ({ path, query }: ApiRequest) => {
    if (!path.endsWith("/customresourcedefinitions")) return { status: 200, body: discovery };
    asked.push(query?.["resourceVersion"]?.toString());
    const has = atOnce();
    const items = has === undefined ? [] : [{ metadata: { ...KNOWN, ...has } }];
    return { status: 200, body: { kind: "PartialObjectMetadataList", metadata: {}, items } };
  };
  return { asked, client: { transport: { server: "https://a", request } } as unknown as ApiClient };
}

function absent(): undefined {
  return undefined;
}

/** As while the watch cache is being filled: etcd would answer a GET, with the newest CRD. */
function unfilled(): never {
  throw new ApiError("LIST CRDs", 429, { text: "storage is (re)initializing" });
}

function busy(): never {
  throw new ApiError("GET CRD", 429, { text: "later" });
}

async function lost(): Promise<never> {
  throw new Error("the Lease is lost");
}

function toldBy(): { readonly told: string[]; readonly look: FirstLook } {
  const told: string[] = [];
  const onDifference = async (): Promise<void> => void told.push("difference");
  return { told, look: { onLag: () => void told.push("lag"), onDifference } };
}

for (const [title, atOnce, version, lags] of [
  ["has the CRD", () => ({}), "v1", false],
  ["has a newer one", () => ({ resourceVersion: "9", generation: 4 }), "v1", false],
  ["has it but for the freeze", () => ({ resourceVersion: "6" }), "v1", false],
  ["has an older one", () => ({ resourceVersion: "5", generation: 2 }), "v1", true],
  ["has one that was deleted", () => ({ resourceVersion: "5", uid: "before" }), "v1", true],
  ["shows the storage version before", () => ({}), "v1alpha1", true],
  ["has none", absent, "v1", true],
  ["does not say what it has", busy, "v1", true],
  ["has a watch cache that is not filled", unfilled, "v1", true],
] as const) {
  await tap.test(`knownAtFirst() tells ${lags ? "" : "nothing "}once where an API server ${title}`, async (t) => {
    const { asked, client } = serverWith(atOnce, version);
    const { told, look } = toldBy();
    const check = knownAtFirst(TARGET, look, signal);
    for (let times = 0; times < 3; times++) t.equal(await check(client), undefined);
    t.same(told, lags ? ["lag", "difference"] : []);
    t.same(asked, ["0"], "without a wait");
    const other = serverWith(() => ({}));
    t.equal(await check(other.client), undefined);
    t.equal(other.asked.length, lags ? 0 : 1, "there is nothing more to learn");
  });
}

await tap.test("knownAtFirst() tells of a lag where the look is broken off", async (t) => {
  const ended = new AbortController();
  const { client } = serverWith(() => {
    ended.abort(new Error("Ctrl-C"));
    throw new Error("Ctrl-C");
  });
  const { told, look } = toldBy();
  await t.rejects(knownAtFirst(TARGET, look, ended.signal)(client), /Ctrl-C/);
  t.same(told, ["lag"]);
});

await tap.test("knownAtFirst() fails with what it has to wait for, and hides no fault of ksvm", async (t) => {
  const { client } = serverWith(busy);
  const check = knownAtFirst(TARGET, { ...toldBy().look, onDifference: lost }, signal);
  await t.rejects(check(client), /the Lease is lost/);
  const fault = serverWith(() => {
    throw new TypeError("x is not a function");
  });
  await t.rejects(knownAtFirst(TARGET, toldBy().look, signal)(fault.client), TypeError);
});

for (const [title, atOnce, reason] of [
  ["knows the CRD", () => ({}), undefined],
  ["knows an older one", () => ({ resourceVersion: "5" }), /its watch of CRDs is at resourceVersion 5/],
  ["knows none", absent, /404: "widgets.example.com" was deleted/],
  ["has a watch cache that is not filled", unfilled, /its watch cache of CRDs is not filled/],
] as const) {
  await tap.test(`convergenceCheck() where an API server ${title}`, async (t) => {
    const { asked, client } = serverWith(atOnce);
    const failure = await convergenceCheck(TARGET, signal)(client);
    if (reason === undefined) t.equal(failure, undefined);
    else t.match(failure, { reason, silent: false });
    t.same(asked, [KNOWN.resourceVersion]);
  });
}
