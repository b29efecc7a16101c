import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import tap from "tap";
import { objectNameOf } from "../../../src/old/kube/named-object.ts";
import { outcomeOf } from "../../../src/old/migrator/result.ts";
import { MAX_NAMED_OBJECTS, Tally } from "../../../src/old/migrator/rewrite/counts.ts";
import { PageSize } from "../../../src/old/migrator/rewrite/page-size.ts";

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

const MIB = 2 ** 20;

/** Pages of objects of one size, until the limit does not move any more. */
function grow(size: PageSize, objectBytes: number): readonly number[] {
  const limits = [size.limit];
  for (let last = -1; last !== size.limit; ) {
    last = size.limit;
    size.received({ items: last, bytes: last * objectBytes });
    limits.push(size.limit);
  }
  return limits;
}

await tap.test("PageSize grows from a first page to --page-size when objects are small", (t) => {
  const size = new PageSize(500);
  size.received({ items: 1, bytes: 500 });
  t.same(grow(size, 500), [200, 500, 500]);
  t.end();
});

await tap.test("PageSize asks for some 4 MiB, whatever the objects' size", (t) => {
  for (const [objectBytes, expected] of [
    [200_000, 20],
    [MIB, 4],
    [10 * MIB, 1],
  ] as const) {
    const size = new PageSize(500);
    size.received({ items: 1, bytes: objectBytes });
    t.equal(size.limit, expected);
    size.received({ items: expected, bytes: expected * objectBytes });
    t.equal(size.limit, expected);
  }
  t.end();
});

await tap.test("PageSize never asks for more than --page-size, and not for nothing", (t) => {
  const size = new PageSize(10);
  t.equal(size.limit, 10);
  size.received({ items: 10, bytes: 10 });
  size.received({ items: 0, bytes: 100 });
  t.equal(size.limit, 10);
  t.end();
});

await tap.test("PageSize halves when a page takes too long, down to one object, and grows by a quarter again", (t) => {
  const size = new PageSize(500);
  grow(size, 500);
  size.tookTooLong();
  t.equal(size.limit, 250);
  for (let i = 0; i < 20; i++) size.tookTooLong();
  t.equal(size.limit, 1);
  const limits = grow(size, 500);
  t.same(limits.slice(0, 8), [1, 2, 3, 4, 5, 7, 9, 12]);
  t.equal(limits.at(-1), 500);
  t.end();
});

await tap.test("outcomeOf() is incomplete as soon as one object failed", (t) => {
  const tally = new Tally();
  tally.add({ name: "a" }, { kind: "migrated", changed: true });
  t.equal(outcomeOf(tally, "migrated"), "migrated");
  t.equal(outcomeOf(tally, "dry-run"), "dry-run");
  tally.add({ name: "b" }, { kind: "failed", reason: "r" });
  t.equal(outcomeOf(tally, "migrated"), "incomplete");
  t.equal(outcomeOf(tally, "dry-run"), "incomplete");
  t.end();
});
