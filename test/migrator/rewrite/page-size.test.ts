import tap from "tap";
import { PageSize } from "../../../src/migrator/rewrite/page-size.ts";

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
