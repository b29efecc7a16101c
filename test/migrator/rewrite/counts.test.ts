import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import tap from "tap";

import { objectNameOf } from "../../../src/kube/named-object.ts";
import { MAX_NAMED_OBJECTS, Tally } from "../../../src/migrator/rewrite/counts.ts";

await tap.test("Tally.add() counts each outcome once", (t) => {
  const tally = new Tally();
  const object = { namespace: "ns", name: "a" };
  tally.add(object, { kind: "migrated", changed: false });
  tally.add(object, { kind: "migrated", changed: true });
  tally.add(object, { kind: "current" });
  tally.add(object, { kind: "newer" });
  tally.add(object, { kind: "gone" });
  tally.add({ name: "b" }, { kind: "failed", reason: "schema" });
  t.same(tally.counts, {
    done: 6,
    migrated: 2,
    current: 1,
    newer: 1,
    gone: 1,
    failed: 1,
    changed: 1,
    total: undefined,
  });
  t.strictSame(tally.failures, [{ name: "b", reason: "schema" }]);
  t.strictSame(tally.changedObjects, [{ namespace: "ns", name: "a" }]);
  t.end();
});

await tap.test("Tally.add() names a hundred objects and counts the rest", (t) => {
  const tally = new Tally();
  for (let index = 0; index < 250; index++) {
    tally.add({ name: `f${index}` }, { kind: "failed", reason: "r" });
    tally.add({ name: `c${index}` }, { kind: "migrated", changed: true });
  }
  t.equal(MAX_NAMED_OBJECTS, 100);
  t.equal(tally.failures.length, 100);
  t.equal(tally.changedObjects.length, 100);
  t.match(tally.counts, { done: 500, failed: 250, changed: 250, migrated: 250 });
  t.equal(tally.failures.at(-1)?.name, "f99");
  t.end();
});

await tap.test("Tally.add() names managedFields that are kept, until the list begins again", (t) => {
  const tally = new Tally();
  tally.add({ name: "a" }, { kind: "migrated", changed: false, keptFields: "not as wanted" });
  tally.add({ name: "b" }, { kind: "newer", isCounted: true, keptFields: "not as wanted" });
  tally.add({ name: "c" }, { kind: "newer" });
  t.match(tally.counts, { done: 2, migrated: 1, newer: 1 }, "b was counted before");
  t.equal(tally.kept, 2);
  const a = { name: "a", reason: "not as wanted" };
  t.strictSame(tally.keptObjects, [a, { name: "b", reason: "not as wanted" }]);
  const copy = new Tally(tally);
  tally.startOver();
  t.same([tally.kept, tally.keptObjects, copy.kept, copy.keptObjects.length], [0, [], 2, 2]);
  copy.clear();
  t.same([copy.kept, copy.keptObjects], [0, []]);
  t.end();
});

await tap.test("objectNameOf() is namespace/name, or the name alone when there is no namespace", (t) => {
  t.equal(objectNameOf({ namespace: "ns", name: "a" }), "ns/a");
  t.equal(objectNameOf({ name: "a" }), "a");
  t.end();
});

const KILOBYTE = "x".repeat(1_024);

await tap.test("Tally keeps the beginning of a reason alone, whatever an admission webhook quotes", (t) => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const usedMib = (): number => {
    collect();
    return process.memoryUsage().heapUsed / 2 ** 20;
  };
  const tally = new Tally();
  const before = usedMib();
  for (let index = 0; index < MAX_NAMED_OBJECTS; index++) {
    // join() makes one flat text, as parsing does.
    const reason = [`denied the request: ${index}: `, ...Array.from({ length: 1_024 }, () => KILOBYTE)].join("");
    tally.add({ name: `a${index}` }, { kind: "failed", reason });
  }
  t.ok(usedMib() - before < 20, "a hundred messages of a megabyte are not kept");
  t.match(tally.failures.at(-1)?.reason, /^denied the request: 99: x{970,}…$/);
  t.end();
});
