import t from "tap";
import type { Foundation } from "../../src/migrator/foundation.ts";
import {
  differenceFrom,
  digestOfFoundation,
  earlierRunOf,
  formatKept,
  type KeptCheckpoint,
  parseKept,
} from "../../src/migrator/kept-checkpoint.ts";
import { formatCheckpoint } from "../../src/migrator/rewrite/checkpoint.ts";

const FOUNDATION: Foundation = {
  apiServers: "each https://a",
  hash: "abc",
  storageVersion: "",
  leases: "a@1",
  restarts: 0,
  arrivals: 1,
  newestArrival: "",
  crd: "uid/1",
  ownApi: "",
  encryption: "e1",
};
const KEPT: KeptCheckpoint = {
  purpose: "ksvm reencrypt",
  resource: "secrets",
  foundation: digestOfFoundation(FOUNDATION),
  settleMs: 65_000,
  quietUpTo: "120",
  watermark: "100",
  continueToken: "token",
  progress: { counts: { current: 1, gone: 0, newer: 4 }, position: { listed: 5, last: "ns/o5" } },
};

await t.test("parseKept() reads what formatKept() wrote, and believes no other text", async (t) => {
  t.same(parseKept(formatKept(KEPT)), KEPT);
  t.same(earlierRunOf(KEPT), { watermark: "100", continueToken: "token", progress: KEPT.progress });
  const counted = { ...KEPT, following: { resourceVersion: "100", count: 7 } };
  t.same(earlierRunOf(parseKept(formatKept(counted)) ?? KEPT), { ...earlierRunOf(KEPT), following: counted.following });
  const { continueToken: _token, progress: _progress, ...first } = KEPT;
  t.same(earlierRunOf(parseKept(formatKept(first)) ?? KEPT), { watermark: "100" });
  const changed = formatKept(KEPT).replace('"100"', '"1000"');
  const crdRun = {
    migration: "m",
    crdUid: "u",
    generation: 1,
    storageVersion: "v1",
    apiServers: "a",
    settleMs: 65_000,
    shutdownDelayMs: 0,
    watermark: "100",
  };
  for (const text of [undefined, "", "{", "null", "[]", "1", "{}", changed, formatCheckpoint(crdRun)]) {
    t.equal(parseKept(text), undefined, String(text));
  }
});

await t.test("differenceFrom() names whatever is not as the killed run had it", async (t) => {
  t.equal(differenceFrom(KEPT, KEPT), undefined);
  t.equal(differenceFrom(KEPT, { ...KEPT, settleMs: 1_000 }), undefined, "it waited longer than is asked for now");
  t.match(differenceFrom(KEPT, { ...KEPT, settleMs: 70_000 }), /waited for late writes for a shorter time/);
  t.match(differenceFrom(KEPT, { ...KEPT, shutdownDelayMs: 1 }), /waited for late writes for a shorter time/);
  const longer = { ...KEPT, shutdownDelayMs: 20_000 };
  t.same(parseKept(formatKept(longer)), longer);
  t.equal(differenceFrom(longer, { ...KEPT, shutdownDelayMs: 0 }), undefined);
  t.match(differenceFrom(longer, { ...longer, settleMs: 70_000 }), /shorter time/, "one does not stand for the other");
  t.match(differenceFrom(KEPT, { ...KEPT, purpose: "other" }), /belongs to another run/);
  t.match(differenceFrom(KEPT, { ...KEPT, resource: "configmaps" }), /belongs to another run/);
  const counted = new Set(["restarts", "arrivals", "newestArrival"]);
  for (const field of Object.keys(FOUNDATION).filter((name) => !counted.has(name))) {
    const foundation = digestOfFoundation({ ...FOUNDATION, [field]: "other" });
    t.match(differenceFrom(KEPT, { ...KEPT, foundation }), /encrypts otherwise/, field);
  }
  const foundation = digestOfFoundation({ ...FOUNDATION, restarts: 3, arrivals: 5, newestArrival: "one left" });
  t.equal(differenceFrom(KEPT, { ...KEPT, foundation }), undefined, "each process counts these for itself");
});
