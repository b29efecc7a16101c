import tap from "tap";
import { HEARTBEAT_LIMIT_MS } from "../../src/api/migration.ts";
import { decide } from "../../src/trigger/decide.ts";
import type { CrdRecord } from "../../src/trigger/crd-facts.ts";
import { builtIn, crd, custom, disagreeing, migration, NOW, situation, state } from "./situation.ts";

const OLD = NOW - HEARTBEAT_LIMIT_MS - 1;

function recordOf(storedVersions: readonly string[], generation = 3): CrdRecord {
  return { uid: "crd-uid", generation, storedVersions };
}

await tap.test("decide() keeps the hashes that it knows of when no replica looked for too long", async (t) => {
  const before = { crd: recordOf(["v1", "v2"]), heartbeat: OLD };
  const pruned = custom(crd(["v2"], { generation: 5 }));
  const decision = decide(situation(pruned, state(["#v1", "#v2"], "#v2", before), [migration("Failed", "#v2")]));
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

/** A StorageState that was created, and whose status was never written. */
const begun = (record: CrdRecord | undefined) => state([], "", record === undefined ? {} : { crd: record });

await tap.test(
  "decide() does not take a CRD for new that a leader saw before it could write the status of the StorageState",
  async (t) => {
    const pruned = custom(crd(["v2"]));
    for (const record of [recordOf(["v1", "v2"]), recordOf(["v1"], 2), recordOf(["v2"], 1)]) {
      const decision = decide(situation(pruned, begun(record)));
      t.equal(decision.cause, "new");
      t.same(
        decision.status?.persisted,
        ["Unknown", "#v2"],
        "another client pruned it, or its storage version changed",
      );
      t.match(decision.create, { hash: "#v2", isForced: true });
    }
    for (const record of [undefined, recordOf(["v2"]), { ...recordOf(["v1", "v2"]), uid: "another" }]) {
      const decision = decide(situation(pruned, begun(record)));
      t.same(decision.status?.persisted, ["Unknown"], "nothing is known against its storedVersions");
      t.match(decision.create, { isForced: false });
    }
  },
);

await tap.test(
  "decide() keeps what a leader wrote of a CRD that was created again, and could not say of which CRD it is",
  async (t) => {
    const pruned = custom(crd(["v2"], { uid: "another" }));
    const before = { crd: recordOf(["v1", "v2"]) };
    const begun = decide(situation(pruned, state(["Unknown", "#v1", "#v2"], "#v2", before)));
    t.equal(begun.cause, "new");
    t.same(begun.status, undefined, "the status stays: another client has pruned v1, and objects may be stored in it");
    t.match(begun.create, { hash: "#v2", isForced: true });
    t.equal(begun.crdRecord, "another/3/v2");
    const settled = decide(situation(pruned, state(["#v2"], "#v2", before)));
    t.same(settled.status?.persisted, ["Unknown"], "what was known of the objects of the earlier CRD went with them");
    t.match(settled.create, { isForced: false });
  },
);

await tap.test(
  "decide() believes a clean CRD that has no StorageState yet unless a look has seen it otherwise",
  async (t) => {
    const pruned = custom(crd(["v2"]));
    const decided = (firstSeen: CrdRecord) => decide({ ...situation(pruned, undefined), firstSeen });
    t.match(decided(recordOf(["v2"])), { status: { persisted: ["Unknown"] }, create: { isForced: false } });
    t.match(decided({ ...recordOf(["v1", "v2"]), uid: "of-an-earlier-crd" }), { create: { isForced: false } });
    for (const firstSeen of [recordOf(["v1", "v2"]), recordOf(["v2"], 2)]) {
      const { create, status } = decided(firstSeen);
      t.same(status?.persisted, ["Unknown", "#v2"], "objects may still be stored in what another client pruned");
      t.match(create, { isForced: true });
    }
  },
);
