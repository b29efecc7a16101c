import tap from "tap";
import type { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { storageVersionHashOf } from "../../src/api/crd.ts";
import {
  type ConvergenceTarget,
  convergenceCheck,
  knownAtFirst,
  lagReason,
  onceEach,
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
 * test chooses. It waits for a state that is asked for.
 * @param atOnce what it has when it is asked for any
 */
function serverWith(atOnce: Partial<typeof KNOWN> | undefined) {
  const asked: (string | undefined)[] = [];
  const getMetadata = async (
    _: unknown,
    { name }: object & { name: string },
    { notOlderThan }: { notOlderThan?: string },
  ) => {
    asked.push(notOlderThan);
    if (notOlderThan !== "0") return { metadata: KNOWN };
    if (atOnce === undefined) {
      throw new ApiError("GET CRD", 404, { answer: { kind: "Status", reason: "NotFound", details: { name } } });
    }
    return { metadata: { ...KNOWN, ...atOnce } };
  };
  const resources = [{ ...FOUND, storageVersionHash: hash("v1") }];
  const request = async () => ({
    status: 200,
    body: { kind: "APIResourceList", groupVersion: "example.com/v1", resources },
  });
  return { asked, client: { getMetadata, transport: { server: "https://a", request } } as unknown as ApiClient };
}

for (const [title, atOnce, lags, questions] of [
  ["has it", {}, false, 1],
  ["has a newer one", { resourceVersion: "9", generation: 4 }, false, 1],
  ["has it but for the freeze, and follows", { resourceVersion: "6" }, false, 2],
  ["has an older one, and follows", { resourceVersion: "5", generation: 2 }, true, 1],
  ["has one that was deleted, and follows", { resourceVersion: "5", uid: "before" }, true, 1],
  ["has none, and follows", undefined, true, 1],
] as const) {
  await tap.test(`convergenceCheck() ${lags ? "fails" : "passes"} where an API server ${title}`, async (t) => {
    const { asked, client } = serverWith(atOnce);
    const failure = await convergenceCheck(TARGET, signal)(client);
    t.equal(failure?.reason.startsWith("its watch of CRDs is at"), lags ? true : undefined);
    t.equal(asked.length, questions);
  });

  await tap.test(`knownAtFirst() tells ${lags ? "" : "nothing "}once where an API server ${title}`, async (t) => {
    const { asked, client } = serverWith(atOnce);
    const told: string[] = [];
    const onDifference = async (): Promise<void> => void told.push("difference");
    const check = knownAtFirst(KNOWN, { onLag: () => told.push("lag"), onDifference }, signal);
    for (let times = 0; times < 3; times++) t.equal(await check(client), undefined);
    t.same(told, lags ? ["lag", "difference"] : []);
    t.same(asked, ["0"]);
  });
}

await tap.test("knownAtFirst() tells of a lag where the look is broken off", async (t) => {
  const ended = new AbortController();
  let lags = 0;
  const getMetadata = async (): Promise<never> => {
    ended.abort(new Error("Ctrl-C"));
    throw new Error("Ctrl-C");
  };
  const look = { onLag: () => void lags++, onDifference: async () => undefined };
  const check = knownAtFirst(KNOWN, look, ended.signal);
  await t.rejects(check({ getMetadata } as unknown as ApiClient), /Ctrl-C/);
  t.equal(lags, 1);
});

await tap.test("onceEach() passes whatever a look shows, and looks no more once one has not answered", async (t) => {
  const shown = [undefined, { reason: "503", silent: false }, { reason: "reset", silent: true }];
  let looks = 0;
  const look = onceEach(async () => shown[looks++]);
  for (let asked = 0; asked < 5; asked++) t.equal(await look({} as ApiClient), undefined);
  t.equal(looks, 3);
});
