import tap from "tap";
import { HEARTBEAT_LIMIT_MS } from "../../src/api/migration.ts";
import { MAX_HASHES, parseStorageState } from "../../src/api/parse-storage-state.ts";
import type { CrdRecord } from "../../src/trigger/crd-facts.ts";
import { decide } from "../../src/trigger/decide.ts";
import type { MigrationFacts } from "../../src/trigger/migration-facts.ts";
import { MINUTE, NOW, builtIn, crd, custom, disagreeing, migration, situation, state } from "./situation.ts";

const OLD = NOW - HEARTBEAT_LIMIT_MS - 1;

function recordOf(storedVersions: readonly string[], generation = 3): CrdRecord {
  return { uid: "crd-uid", generation, storedVersions };
}

await tap.test("decide() keeps the hashes that it knows of when no replica looked for too long", async (t) => {
  const before = { crd: recordOf(["v1", "v2"]), heartbeat: OLD };
  const pruned = custom(crd(["v2"], { generation: 5 }));
  const decision = decide(situation(pruned, state(["#v1", "#v2"], "#v2", before)));
  t.same(decision.status?.persisted, ["Unknown", "#v1", "#v2"], "objects may still be stored in v1");
  t.match(decision.create, { isForced: true }, "another client pruned storedVersions");

  const later = state(decision.status?.persisted ?? [], "#v2", { crd: recordOf(["v2"], 5) });
  const found = migration("Succeeded", "#v2", { reason: "NothingToDo", provenCrd: "crd-uid/5" });
  t.equal(decide(situation(pruned, later, [found])).cause, "unchanged", "nothing to do proves nothing");

  const listed = custom(crd(["v1", "v2"], { generation: 5 }));
  const seen = decide(situation(listed, state(["#v2"], "#v2", { ...before, crd: recordOf(["v2"]) })));
  t.same(seen.status?.persisted, ["Unknown", "#v2", "#v1"], "before another client prunes it");
});

await tap.test("decide() keeps the hashes that it knows of when API servers disagree after a long gap", async (t) => {
  const open = state(["A", "B"], "B", { heartbeat: OLD });
  t.same(decide(situation(disagreeing(["B", "C"]), open)).status, {
    persisted: ["Unknown", "A", "B", "C"],
    current: "Unknown",
  });
  const gone = decide(situation(builtIn("C"), open));
  t.same(gone.status?.persisted, ["Unknown", "A", "B", "C"]);
  t.match(gone.create, { isLowPriority: false }, "its hash changed, so it does not queue last");
});

await tap.test(
  "decide() takes two changes of a clean CRD since the last look for a storage version that went there and back",
  async (t) => {
    const looked = (heartbeat: number, generation?: number) =>
      state(
        ["#v2"],
        "#v2",
        generation === undefined ? { heartbeat } : { heartbeat, crd: recordOf(["v2"], generation) },
      );
    const observed = custom(crd(["v2"], { generation: 8 }));
    for (const heartbeat of [NOW, OLD]) {
      for (const generation of [8, 7]) {
        const decision = decide(situation(observed, looked(heartbeat, generation)));
        t.equal(decision.cause, "unchanged", "one change cannot do it");
        t.equal(decision.create, undefined);
      }
      for (const generation of [6, 9, undefined]) {
        const decision = decide(situation(observed, looked(heartbeat, generation)));
        t.same(new Set(decision.status?.persisted), new Set(["#v2", "Unknown"]));
        t.match(decision.create, { hash: "#v2", isForced: true });
        t.equal(decision.crdRecord, "crd-uid/8/v2");
      }
    }
    const open = state(["#v2", "Unknown"], "#v2", { crd: recordOf(["v2"], 8) });
    const found = migration("Succeeded", "#v2", { reason: "NothingToDo" });
    t.match(decide(situation(observed, open, [found])).create, { isForced: true }, "nothing to do proves nothing");
    const done = migration("Succeeded", "#v2", { reason: "Migrated", provenCrd: "crd-uid/8" });
    t.equal(decide(situation(observed, open, [done])).cause, "completed");
    const ahead = state(["Unknown"], "#v2", { crd: recordOf(["v2"], 5) });
    t.equal(decide(situation(observed, ahead, [done])).cause, "completed", "every object was rewritten since");
    const never = decide(situation(observed, ahead, [found]));
    t.same(never.status?.persisted, ["Unknown", "#v2"]);
  },
);

await tap.test("decide() lists every version that a new resource's CRD lists as stored", async (t) => {
  const dirty = custom(crd(["v1", "v2"]));
  const first = decide(situation(dirty, undefined));
  t.equal(first.cause, "new");
  t.same(first.status, { persisted: ["Unknown", "#v1", "#v2"], current: "#v2" });
  t.equal(first.create?.isForced, false, "storedVersions shows what is left to do");
  const ofEarlier = state(["#old"], "#v2", { crd: { ...recordOf(["v2"]), uid: "another" } });
  t.same(decide(situation(dirty, ofEarlier)).status?.persisted, ["Unknown", "#v1", "#v2"]);
  t.same(decide(situation(custom(crd(["v2"])), undefined)).status?.persisted, ["Unknown"]);

  const pruned = custom(crd(["v2"], { generation: 4 }));
  const known = state(first.status?.persisted ?? [], "#v2", { crd: recordOf(["v1", "v2"]) });
  const found = migration("Succeeded", "#v2", { reason: "NothingToDo", provenCrd: "crd-uid/4" });
  const later = decide(situation(pruned, known, [found]));
  t.not(later.cause, "completed", "another client pruned storedVersions: nothing to do proves nothing");
  t.match(later.create, { isForced: true });
});

/** A migration that says Succeeded, for this reason or for none, of the hash of now. */
function succeeded(reason: string | undefined, more: Partial<MigrationFacts> = {}): MigrationFacts {
  const { provenCrd: _, reason: _given, ...facts } = migration("Succeeded", "B", more);
  return reason === undefined ? facts : { ...facts, reason };
}

await tap.test("decide() believes no success of a built-in resource that ksvm did not write", (t) => {
  const known = state(["A", "B"], "B");
  // kube-storage-version-migrator gives no reason, and Kubernetes' own migrator another one; ksvm finds nothing to do with a CRD alone.
  for (const reason of [undefined, "", "StorageVersionMigrationSucceeded", "NothingToDo"]) {
    for (const isOurs of [true, false]) {
      const decision = decide(situation(builtIn("B"), known, [succeeded(reason, { isOurs })]));
      t.equal(decision.cause, "unchanged", String(reason));
      t.equal(decision.status, undefined, "objects may be stored as A");
      t.match(decision.create, { hash: "B", attempt: 2 });
    }
  }
  for (const reason of ["Migrated", "Reencrypted"]) {
    const { cause, create, status } = decide(situation(builtIn("B"), known, [succeeded(reason)]));
    t.match({ cause, status }, { cause: "completed", status: { persisted: ["B"], current: "B" } }, reason);
    t.equal(create, undefined);
  }
  t.end();
});

await tap.test("decide() tries again later each time where another program calls every migration Succeeded", (t) => {
  const known = state(["A", "B"], "B");
  const first = succeeded(undefined);
  const again = succeeded(undefined, { uid: "again", name: "again", attempt: 2, createdAt: NOW - MINUTE });
  const busy = decide(situation(builtIn("B"), known, [first, again]));
  t.equal(busy.create, undefined);
  t.equal(busy.lookAgainMs, MINUTE);
  t.match(busy.waiting, /^"again" proves nothing: another program than ksvm called it Succeeded \(attempt 2\)$/);
  t.same(busy.remove, [first], "one record is kept");
  const later = decide(situation(builtIn("B"), known, [{ ...again, endedAt: NOW - MINUTE }]));
  t.match(later.create, { hash: "B", attempt: 3 });
  const third = { ...again, uid: "third", attempt: 3 };
  t.equal(decide(situation(builtIn("B"), known, [third])).lookAgainMs, 2 * MINUTE);
  t.end();
});

function hashes(count: number): readonly string[] {
  return Array.from({ length: count }, (_, at) => `#old${at}`);
}

function readWith(count: number) {
  return parseStorageState({
    metadata: { name: "pods", uid: "u", resourceVersion: "1" },
    status: { persistedStorageVersionHashes: hashes(count), currentStorageVersionHash: "a" },
  });
}

await tap.test("a StorageState with more hashes than our CRD takes counts as never written", async (t) => {
  t.equal(readWith(MAX_HASHES).object?.status?.persistedStorageVersionHashes?.length, MAX_HASHES);
  t.same(readWith(MAX_HASHES + 1).ignored, ["status"]);
});
