import * as fc from "fast-check";
import tap from "tap";
import { storageVersionHashOf } from "../../../src/api/crd.ts";
import type { ManagedFieldsEntry } from "../../../src/api/meta.ts";
import { type ConvergenceTarget, convergenceCheck, lagReason } from "../../../src/old/apiservers/converge.ts";
import { lateWritesSince } from "../../../src/old/apiservers/late-writes-since.ts";
import {
  STAMP_MARGIN_MS,
  type SeenChange,
  lastStorageChangeOf,
  lastVersionsChangeOf,
  settleRemainingMs,
  storageChangeOf,
} from "../../../src/old/apiservers/settle.ts";
import type { ApiRequest } from "../../../src/old/kube/api-request.ts";
import type { ApiClient } from "../../../src/old/kube/client.ts";
import { ApiError } from "../../../src/old/kube/errors.ts";
import { crdWith } from "../../api/crd-with.ts";
import { TEST_SEED } from "../../seed.ts";

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

const OWNS_VERSIONS = { "f:spec": { "f:group": {}, "f:versions": {} } };
const at = (minute: number): string => `2026-01-01T00:0${minute}:00Z`;
const owner = (minute: number, rest: Partial<ManagedFieldsEntry> = {}): ManagedFieldsEntry => ({
  manager: "kubectl",
  operation: "Update",
  time: at(minute),
  fieldsV1: OWNS_VERSIONS,
  ...rest,
});

/** Changes with these times, all of them first seen at `now`. */
function seenAt(now: number, times: readonly number[]): readonly SeenChange[] {
  return times.map((at) => ({ at, seenAt: now }));
}

const settleCases: readonly [
  name: string,
  managedFields: readonly ManagedFieldsEntry[] | undefined,
  created: string | undefined,
  change: string | undefined,
][] = [
  ["the newest of two entries", [owner(3), owner(2)], at(1), at(3)],
  ["the creation where it is the newest", [owner(1)], at(4), at(4)],
  ["not an entry of a subresource", [owner(1), owner(5, { subresource: "status" })], at(0), at(1)],
  ["not an entry that owns no spec.versions", [owner(1), owner(5, { fieldsV1: { "f:spec": {} } })], at(0), at(1)],
  ["not an entry that owns metadata alone", [owner(1), owner(5, { fieldsV1: { "f:metadata": {} } })], at(0), at(1)],
  ["untold without managedFields", undefined, at(0), undefined],
  ["untold without an entry", [], at(0), undefined],
  ["untold where only a subresource's entry owns it", [owner(1, { subresource: "status" })], at(0), undefined],
  ["untold where only metadata is owned", [owner(1, { fieldsV1: { "f:metadata": {} } })], at(0), undefined],
  ["untold where fieldsV1 is odd", [owner(1, { fieldsV1: { "f:spec": null } })], at(0), undefined],
  ["untold without a creationTimestamp", [owner(1)], undefined, undefined],
  ["untold where an entry has no time", [owner(2), { fieldsV1: OWNS_VERSIONS }], at(0), undefined],
  ["untold where a time is no time", [owner(2), owner(1, { time: "yesterday" })], at(0), undefined],
];

/** An entry that owns these fields of `spec.conversion`, and nothing else. */
const converts = (minute: number, conversion: object, rest: Partial<ManagedFieldsEntry> = {}): ManagedFieldsEntry =>
  owner(minute, { manager: "installer", fieldsV1: { "f:spec": { "f:conversion": conversion } }, ...rest });
const BUNDLE = { "f:webhook": { "f:clientConfig": { "f:caBundle": {} } } };
const DOTTED_BUNDLE = { ".": {}, "f:webhook": { ".": {}, "f:clientConfig": { ".": {}, "f:caBundle": {} } } };
const URL_AND_BUNDLE = { "f:webhook": { "f:clientConfig": { "f:caBundle": {}, "f:url": {} } } };

const conversions: readonly [name: string, managedFields: readonly ManagedFieldsEntry[], change: string | undefined][] =
  [
    ["that of the strategy", [owner(1), converts(3, { "f:strategy": {} })], at(3)],
    ["that of the webhook's address", [owner(1), converts(3, URL_AND_BUNDLE)], at(3)],
    [
      "that of the review versions",
      [owner(1), converts(3, { "f:webhook": { "f:conversionReviewVersions": {} } })],
      at(3),
    ],
    ["that of the versions where it is newer", [owner(4), converts(3, { "f:strategy": {} })], at(4)],
    ["not that of a caBundle", [owner(1), converts(3, BUNDLE)], at(1)],
    ["not that of a caBundle by an update", [owner(1), converts(3, DOTTED_BUNDLE)], at(1)],
    ["not that of a field that is there, and has owners of its own", [owner(1), converts(3, { ".": {} })], at(1)],
    ["not that of one whose owners are others by now", [owner(1), converts(3, {})], at(1)],
    ["not that of a webhook whose owners are others by now", [owner(1), converts(3, { "f:webhook": {} })], at(1)],
    ["not that of a subresource", [owner(1), converts(3, { "f:strategy": {} }, { subresource: "status" })], at(1)],
    ["untold where nobody owns the versions", [converts(3, { "f:strategy": {} })], undefined],
    ["untold where an entry has no time", [owner(1), { ...converts(3, URL_AND_BUNDLE), time: "soon" }], undefined],
  ];

for (const [name, managedFields, change] of conversions) {
  await tap.test(`lastStorageChangeOf() is ${name}`, (t) => {
    const crd = crdWith({ metadata: { managedFields, creationTimestamp: at(0) } });
    t.equal(lastStorageChangeOf(crd), change === undefined ? undefined : Date.parse(change));
    t.match(storageChangeOf(crd), { at: lastStorageChangeOf(crd) });
    t.end();
  });
}

for (const [name, managedFields, created, change] of settleCases) {
  await tap.test(`lastVersionsChangeOf() is ${name}`, (t) => {
    const crd = crdWith({
      metadata: {
        ...(managedFields === undefined ? {} : { managedFields }),
        ...(created === undefined ? {} : { creationTimestamp: created }),
      },
    });
    t.equal(lastVersionsChangeOf(crd), change === undefined ? undefined : Date.parse(change));
    t.equal(lastStorageChangeOf(crd), lastVersionsChangeOf(crd), "and so it is of the conversion, which is as it was");
    t.end();
  });
}

await tap.test(
  "settleRemainingMs() believes a stamp only where it is older by a margin, and adds the second that API times are cut by",
  (t) => {
    const serverNow = 1_000_000;
    const left = (...at: number[]): number =>
      settleRemainingMs({ settleMs: 65_000, serverNow, localNow: serverNow, now: 7, changes: seenAt(7, at) });
    const over = serverNow - 66_000 - STAMP_MARGIN_MS;
    t.equal(left(), 0);
    t.equal(left(serverNow), 66_000);
    t.equal(left(over, serverNow - 10_000), 66_000);
    t.equal(left(over + 1), 66_000, "the clock that stamped it may have been behind");
    t.equal(left(over), 0);
    t.equal(left(serverNow - 3_600_000), 0, "an hour ago");
    const input = { settleMs: 0, serverNow, localNow: serverNow, now: 7, changes: seenAt(7, [serverNow]) };
    t.equal(settleRemainingMs(input), 1_000);
    t.end();
  },
);

await tap.test("settleRemainingMs() believes a stamp only where it is old by the local clock too", (t) => {
  const at = 1_000_000;
  const over = at + 66_000 + STAMP_MARGIN_MS;
  const left = (serverNow: number, localNow: number): number =>
    settleRemainingMs({ settleMs: 65_000, serverNow, localNow, now: 7, changes: seenAt(7, [at]) });
  t.equal(left(over, over), 0);
  t.equal(left(over, over - 1), 66_000, "the Date of the API server may be ahead");
  t.equal(left(over - 1, over), 66_000, "and so may the local clock");
  t.end();
});

await tap.test("settleRemainingMs() counts what has no stamp from its first sight, whatever any clock says", (t) => {
  const clocks = { serverNow: Number.MAX_SAFE_INTEGER, localNow: Number.MAX_SAFE_INTEGER };
  const left = (now: number): number =>
    settleRemainingMs({ settleMs: 65_000, ...clocks, now, changes: [{ at: undefined, seenAt: 7 }] });
  t.equal(left(7), 66_000);
  t.equal(left(66_006), 1);
  t.equal(left(66_007), 0);
  t.end();
});

await tap.test(
  "settleRemainingMs() counts from the first sight of a change at the latest, whatever its time says",
  (t) => {
    const serverNow = 1_000_000;
    const [ahead] = seenAt(100_000, [serverNow + 8 * 3_600_000]);
    const [recent] = seenAt(120_000, [serverNow - 600_000]);
    if (ahead === undefined || recent === undefined) throw new Error("no changes");
    const left = (now: number, ...changes: SeenChange[]): number =>
      settleRemainingMs({ settleMs: 65_000, serverNow, localNow: serverNow, now, changes });
    t.equal(left(100_000, ahead), 66_000);
    t.equal(left(165_999, ahead), 1);
    t.equal(left(166_000, ahead), 0);
    t.equal(left(166_000, ahead, recent), 20_000, "each change has a first sight of its own");
    t.end();
  },
);

await tap.test("settleRemainingMs() is never negative and never longer for a later clock or an older change", (t) => {
  const time = fc.integer({ min: 0, max: 10_000_000 });
  fc.assert(
    fc.property(fc.array(time), time, time, fc.nat(200_000), (changes, serverNow, later, settleMs) => {
      const now = 0;
      const remaining = (at: readonly number[], passedMs = 0): number =>
        settleRemainingMs({
          settleMs,
          serverNow: serverNow + passedMs,
          localNow: serverNow + passedMs,
          now: now + passedMs,
          changes: seenAt(now, at),
        });
      const left = remaining(changes);
      return (
        left >= 0 &&
        left <= settleMs + 1_000 &&
        remaining(changes, later) <= left &&
        remaining([...changes, later]) >= left &&
        remaining(changes, left) === 0
      );
    }),
    { seed: TEST_SEED },
  );
  t.end();
});

const DELAY = { now: 100_000, shutdownDelayMs: 20_000 };
const LOOK = { at: undefined, seenAt: 50_000 };

const lateWritesSinceCases = [
  { name: "one that left after the look", since: LOOK, changedAt: 40_000, seenAt: 60_000 },
  { name: "the look, where one left long before it", since: LOOK, changedAt: 10_000, seenAt: 50_000 },
  { name: "the look, where nothing is watched: one may have left right before it", since: LOOK, seenAt: 70_000 },
  { name: "one that left, where the encryption is not looked at", changedAt: 40_000, seenAt: 60_000 },
  { name: "now, where nothing is watched or looked at", seenAt: 120_000 },
];

for (const { name, since, changedAt, seenAt } of lateWritesSinceCases) {
  await tap.test(`lateWritesSince() counts from ${name}`, (t) => {
    t.same(lateWritesSince(since, { arrivals: { changedAt }, ...DELAY }), { at: undefined, seenAt });
    t.end();
  });
}
