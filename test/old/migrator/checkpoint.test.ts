import * as fc from "fast-check";
import tap from "tap";
import { ApiError, TransportError } from "../../../src/old/kube/errors.ts";
import {
  type Checkpoint,
  checkpointOwnerOf,
  earlierProgressOf,
  formatCheckpoint,
  resumePointOf,
} from "../../../src/old/migrator/rewrite/checkpoint.ts";
import { isTokenFailure, nextTokenAfter } from "../../../src/old/migrator/rewrite/continue-token.ts";
import { Tally } from "../../../src/old/migrator/rewrite/counts.ts";
import { crdWith } from "../../api/crd-with.ts";
import { TEST_SEED } from "../../seed.ts";

const CRD = crdWith();
const SERVERS = "each https://10.0.0.1:6443 0";
const MIGRATION = "StorageVersionMigration uid-of-the-migration";
const EXPECTED = { migration: MIGRATION, apiServers: SERVERS, settleMs: 65_000, shutdownDelayMs: 20_000 };
const SEEN = {
  resourceVersion: "190",
  written: { name: "w17", namespace: "ns", uid: "uid-17", resourceVersion: "180" },
};
const CHECKPOINT: Checkpoint = {
  migration: MIGRATION,
  crdUid: "uid-1",
  generation: 3,
  storageVersion: "v2",
  apiServers: SERVERS,
  settleMs: 65_000,
  shutdownDelayMs: 20_000,
  watermark: "100",
  continueToken: "token",
  seen: SEEN,
};

await tap.test("resumePointOf() gives back what formatCheckpoint() was given when the CRD is the same", (t) => {
  t.same(resumePointOf(formatCheckpoint(CHECKPOINT), CRD, EXPECTED), {
    watermark: "100",
    continueToken: "token",
    seen: SEEN,
  });
  const { continueToken: _, ...first } = CHECKPOINT;
  t.same(resumePointOf(formatCheckpoint(first), CRD, EXPECTED), { watermark: "100", seen: SEEN });
  fc.assert(
    fc.property(fc.string(), fc.string(), (watermark, continueToken) => {
      const text = formatCheckpoint({ ...CHECKPOINT, watermark, continueToken });
      t.same(resumePointOf(text, CRD, EXPECTED), { watermark, continueToken, seen: SEEN });
    }),
    { seed: TEST_SEED },
  );
  t.end();
});

await tap.test(
  "resumePointOf() gives back how far a run was, where its list goes on, and no object that failed",
  (t) => {
    const counts = {
      ...new Tally().counts,
      done: 23,
      migrated: 8,
      newer: 4,
      current: 5,
      gone: 6,
      failed: 0,
      total: 99,
    };
    const progress = earlierProgressOf(counts, { listed: 17, last: "ns/w17" });
    const left = { watermark: "100", continueToken: "token", seen: SEEN };
    const resumed = resumePointOf(formatCheckpoint({ ...CHECKPOINT, progress }), CRD, EXPECTED);
    const kept = { counts: { current: 5, gone: 6, newer: 12 }, position: { listed: 17, last: "ns/w17" } };
    t.same(resumed, { ...left, progress: kept }, "what it wrote was written since the watermark");
    t.match(Tally.after(resumed?.progress?.counts).counts, { done: 23, migrated: 0, newer: 12, failed: 0 });
    const following = { resourceVersion: "100", count: 7 };
    const counted = resumePointOf(formatCheckpoint({ ...CHECKPOINT, following }), CRD, EXPECTED);
    t.same(counted, { ...left, following }, "and what the API server counted behind");
    const { continueToken: _, ...first } = { ...CHECKPOINT, progress, following };
    t.same(
      resumePointOf(formatCheckpoint(first), CRD, EXPECTED),
      { watermark: "100", seen: SEEN },
      "every object is shown again",
    );
    for (const forged of [7, null, "x", [], {}, { counts: { ...kept.counts, newer: -1 }, position: kept.position }]) {
      const text = formatCheckpoint({ ...CHECKPOINT, progress: forged as unknown as typeof progress });
      t.same(resumePointOf(text, CRD, EXPECTED), left, "counts from zero");
    }
    const failed = { counts: { ...kept.counts, failed: -3 }, position: kept.position };
    const text = formatCheckpoint({ ...CHECKPOINT, progress: failed });
    t.same(resumePointOf(text, CRD, EXPECTED)?.progress, kept, "whether something is pruned never rests on it");
    t.end();
  },
);

const otherCrds: readonly [name: string, crd: ReturnType<typeof crdWith>][] = [
  ["another uid", crdWith({ metadata: { uid: "uid-2" } })],
  ["a later generation", crdWith({ metadata: { generation: 4 } })],
  ["an earlier generation", crdWith({ metadata: { generation: 2 } })],
  ["another storage version", crdWith({ versions: ["v1+", "v2"] })],
];

for (const [name, crd] of otherCrds) {
  await tap.test(`W is not reused: resumePointOf() believes nothing when the CRD has ${name}`, (t) => {
    t.equal(resumePointOf(formatCheckpoint(CHECKPOINT), crd, EXPECTED), undefined);
    t.end();
  });
}

const texts: readonly (string | undefined)[] = [
  undefined,
  "",
  "null",
  "{",
  "[]",
  '"100"',
  "{}",
  JSON.stringify({ ...CHECKPOINT, watermark: undefined }),
  JSON.stringify({ ...CHECKPOINT, watermark: 100 }),
  JSON.stringify({ ...CHECKPOINT, generation: "3" }),
  JSON.stringify({ ...CHECKPOINT, crdUid: undefined }),
];

for (const text of texts) {
  await tap.test(`resumePointOf() believes nothing when the text is ${text ?? "missing"}`, (t) => {
    t.equal(resumePointOf(text, CRD, EXPECTED), undefined);
    t.end();
  });
}

await tap.test("resumePointOf() never takes an identity from a CRD that has none", (t) => {
  const crd = crdWith();
  const { generation: _, ...metadata } = crd.metadata;
  t.equal(resumePointOf(formatCheckpoint(CHECKPOINT), { ...crd, metadata }, EXPECTED), undefined);
  t.end();
});

await tap.test("resumePointOf() believes nothing when other API servers live now", (t) => {
  t.equal(
    resumePointOf(formatCheckpoint(CHECKPOINT), CRD, { ...EXPECTED, apiServers: `${SERVERS} apiserver-new` }),
    undefined,
  );
  t.end();
});

const plain = { purpose: "ksvm migrate", identity: "host_1", options: { force: false } };
const forced = { ...plain, options: { force: true } };
const otherMigrations: readonly [name: string, before: typeof plain, now: typeof plain][] = [
  [
    "another StorageVersionMigration",
    { ...plain, purpose: "StorageVersionMigration a" },
    { ...plain, purpose: "StorageVersionMigration b" },
  ],
  ["a command-line run", plain, { ...plain, purpose: "StorageVersionMigration a" }],
  ["a run that was not forced", plain, forced],
  ["a forced run, which this one is not", forced, plain],
  ["an earlier forced run of the same purpose", forced, { ...forced, identity: "host_2" }],
];

for (const [name, before, now] of otherMigrations) {
  await tap.test(`resumePointOf() believes nothing of a checkpoint of ${name}`, (t) => {
    const text = formatCheckpoint({ ...CHECKPOINT, migration: checkpointOwnerOf(before) });
    t.equal(resumePointOf(text, CRD, { ...EXPECTED, migration: checkpointOwnerOf(now) }), undefined);
    const same = { ...EXPECTED, migration: checkpointOwnerOf(before) };
    t.not(resumePointOf(text, CRD, same), undefined, "negative control: its own is believed");
    t.end();
  });
}

await tap.test("resumePointOf() gives a later run of the same migration what an earlier one left", (t) => {
  const text = formatCheckpoint({ ...CHECKPOINT, migration: checkpointOwnerOf(plain) });
  const later = { ...EXPECTED, migration: checkpointOwnerOf({ ...plain, identity: "host_2" }) };
  t.same(resumePointOf(text, CRD, later), { watermark: "100", continueToken: "token", seen: SEEN });
  t.end();
});

await tap.test("resumePointOf() takes no checkpoint that does not say what its run had seen of the objects", (t) => {
  const { seen: _, ...earlierRelease } = CHECKPOINT;
  t.equal(resumePointOf(formatCheckpoint(earlierRelease), CRD, EXPECTED), undefined);
  const { written, ...listed } = SEEN;
  t.match(resumePointOf(formatCheckpoint({ ...CHECKPOINT, seen: listed }), CRD, EXPECTED), { seen: listed });
  const { uid: _uid, ...cut } = written;
  const broken = { ...listed, written: cut } as unknown as typeof SEEN;
  t.equal(resumePointOf(formatCheckpoint({ ...CHECKPOINT, seen: broken }), CRD, EXPECTED), undefined);
  t.end();
});

const failed = (status: number, token?: string): ApiError =>
  new ApiError("GET /x", status, {
    answer: { kind: "Status", code: status, ...(token === undefined ? {} : { metadata: { continue: token } }) },
  });

await tap.test("isTokenFailure() is true only for 400 and 410", (t) => {
  for (const status of [400, 401, 403, 404, 409, 410, 429, 500]) {
    t.equal(isTokenFailure(failed(status)), status === 400 || status === 410, String(status));
  }
  t.equal(isTokenFailure(new TransportError("GET /x", "https://s", new Error("reset"))), false);
  t.equal(isTokenFailure(undefined), false);
  t.end();
});

const cases: readonly [name: string, error: ApiError, next: string | undefined][] = [
  ["the one that the 410 carries", failed(410, "inconsistent"), "inconsistent"],
  ["the first page when the 410 carries none", failed(410), undefined],
  ["the first page when the 410 carries an empty one", failed(410, ""), undefined],
  ["the first page when the 410 carries the refused one", failed(410, "refused"), undefined],
  ["the first page when a 400 carries one", failed(400, "inconsistent"), undefined],
  ["the first page when the body was no Status", new ApiError("GET /x", 410, { text: "gone" }), undefined],
];

for (const [name, error, next] of cases) {
  await tap.test(`nextTokenAfter() is ${name}`, (t) => {
    t.equal(nextTokenAfter(error, "refused"), next);
    t.end();
  });
}
