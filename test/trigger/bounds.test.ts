import tap from "tap";
import { systemClock } from "../../src/clock.ts";
import { discover } from "../../src/trigger/discover.ts";
import { groupList, sendJson, startServer } from "../kube/local-server.ts";
import { MAX_HASHES, parseStorageState } from "../../src/api/parse-storage-state.ts";
import { formatCrdRecord, MAX_RECORD_LENGTH, parseCrdRecord } from "../../src/trigger/crd-facts.ts";
import { decide } from "../../src/trigger/decide.ts";
import type { MigrationFacts } from "../../src/trigger/migration-facts.ts";
import type { StateFacts } from "../../src/trigger/next-status.ts";
import { builtIn, crd, custom, migration, NOW, situation, state } from "./situation.ts";

function hashes(count: number): readonly string[] {
  return Array.from({ length: count }, (_, at) => `#old${at}`);
}

function readWith(count: number) {
  return parseStorageState({
    metadata: { name: "pods", uid: "u", resourceVersion: "1" },
    status: { persistedStorageVersionHashes: hashes(count), currentStorageVersionHash: "a" },
  });
}

await tap.test("decide() writes no more hashes than a StorageState takes, and then says Unknown", async (t) => {
  const full = hashes(MAX_HASHES);
  const changed = decide(situation(builtIn("B"), state(full, "#old1")));
  const persisted = changed.status?.persisted ?? [];
  t.equal(persisted.length, MAX_HASHES);
  t.equal(persisted[0], "Unknown", "it stands for those that are left out");
  t.equal(persisted.at(-1), "B");
  const later = decide(situation(builtIn("B"), state(persisted, "B")));
  t.equal(later.cause, "unchanged");
  t.match(later.create, { hash: "B" });
});

await tap.test(
  "decide() lets a migration of a CRD with more versions than a StorageState takes get to its end",
  async (t) => {
    const stored = Array.from({ length: MAX_HASHES + 9 }, (_, at) => `v${at}`.padEnd(63, "x"));
    const observed = custom(crd(stored));
    const first = decide(situation(observed, undefined));
    const known = state(first.status?.persisted ?? [], first.status?.current ?? "", {
      crd: parseCrdRecord(first.crdRecord),
    });
    const second = decide(situation(observed, known));
    t.equal(second.cause, "unchanged");
    t.equal(second.crdRecord, undefined, "it is written once");
  },
);

await tap.test("a StorageState with more hashes than our CRD takes counts as never written", async (t) => {
  t.equal(readWith(MAX_HASHES).object?.status?.persistedStorageVersionHashes?.length, MAX_HASHES);
  t.same(readWith(MAX_HASHES + 1).ignored, ["status"]);
});

await tap.test("formatCrdRecord() and parseCrdRecord() keep to a length", async (t) => {
  const record = { uid: "u", generation: 3, storedVersions: hashes(4_000) };
  const text = formatCrdRecord(record);
  t.match(text, /^u\/3\/sha256:[0-9a-f]{64}$/);
  t.equal(formatCrdRecord(parseCrdRecord(text) ?? record), text, "what was read is the same record");
  t.equal(parseCrdRecord(`u/3/${"v".repeat(MAX_RECORD_LENGTH)}`), undefined);
});

// A stand-in: a real API server has no hash of that length; an aggregated one answers what it likes.
await tap.test("discover() takes a hash that no StorageState takes for none", async (t) => {
  const entry = { kind: "Odd", namespaced: true, verbs: ["list", "patch"] };
  const resources = [
    { ...entry, name: "longs", storageVersionHash: "h".repeat(257) },
    { ...entry, name: "numbers", storageVersionHash: 7 },
    { ...entry, name: "sounds", storageVersionHash: "h".repeat(256) },
  ];
  const list = { kind: "APIResourceList", apiVersion: "v1", groupVersion: "odd.example.com/v1", resources };
  const server = await startServer(t, ({ path }, response) =>
    sendJson(response, 200, path === "/apis" ? groupList("odd.example.com/v1") : list),
  );
  const { signal } = new AbortController();
  const found = await discover(server.transport(), { clock: systemClock, group: "odd.example.com", signal });
  t.same(
    found.resources.map(({ resource, hash }) => [resource, hash.length]),
    [
      ["longs", 0],
      ["numbers", 0],
      ["sounds", 256],
    ],
  );
});

await tap.test(
  "decide() waits after a failure of a CRD with so many versions that no annotation has their names",
  async (t) => {
    const stored = Array.from({ length: 40 }, (_, at) => `v${at}`.padEnd(63, "x"));
    const observed = custom(crd(stored));
    const known = state(["#old", observed.hashes[0] ?? ""], observed.hashes[0] ?? "", {
      crd: { uid: "crd-uid", generation: 3, storedVersions: stored },
    });
    const created = decide(situation(observed, known)).create;
    t.ok((created?.storedVersions?.length ?? 2_000) <= 1_024, "what is longer is not read back");
    const mark = { storedVersions: created?.storedVersions ?? "" };
    const failed = migration("Failed", created?.hash, { ...mark, endedAt: NOW - 1 });
    t.equal(decide(situation(observed, known, [failed])).create, undefined, "the retry comes later");
    const lifted = migration("Failed", created?.hash, { ...mark, reason: "FreezeLifted", endedAt: 0 });
    t.match(decide(situation(observed, known, [lifted])).waiting, /another client lifted the freeze/);
    const other = custom(crd(stored.toReversed(), { hash: observed.hashes[0] ?? "" }));
    t.not(decide(situation(other, known, [lifted])).create, undefined, "until storedVersions is another list");
  },
);

await tap.test("decide() ends where a CRD that is never pruned lists more versions than a record has", async (t) => {
  const stored = Array.from({ length: 300 }, (_, at) => `v${at}`.padEnd(63, "x"));
  const observed = custom(crd(stored));
  let known: StateFacts | undefined;
  let ended: MigrationFacts | undefined;
  const causes: string[] = [];
  for (let look = 0; look < 6; look++) {
    const seen = { ...situation(observed, known, ended === undefined ? [] : [ended]), crdMode: "rewrite" as const };
    const { cause, create, crdRecord, status } = decide(seen);
    causes.push(cause);
    known = state(status?.persisted ?? known?.persisted ?? [], status?.current ?? known?.current ?? "", {
      crd: crdRecord === undefined ? known?.crd : parseCrdRecord(crdRecord),
    });
    ended = create === undefined ? ended : migration("Succeeded", create.hash);
  }
  t.same(causes, ["new", "completed", "unchanged", "unchanged", "unchanged", "unchanged"]);
  const more = custom(crd([...stored, "v2alpha1"], { hash: observed.hashes[0] ?? "" }));
  const later = decide({ ...situation(more, known), crdMode: "rewrite" as const });
  t.equal(later.cause, "storedVersions", "one version more is news");
});
