import { array, assert, integer, nat, oneof, property } from "fast-check";
import tap from "tap";
import { CollectedBytes } from "../../src/kube/collected-bytes.ts";

await tap.test("CollectedBytes has every byte in order, however they were cut", (t) => {
  const lengths = array(oneof(nat(40), nat(5_000), integer({ min: 15_000, max: 70_000 })), {
    maxLength: 60,
  });
  assert(
    property(lengths, (cuts) => {
      const chunks = cuts.map((length, index) => Buffer.alloc(length, index + 1));
      const collected = new CollectedBytes();
      for (const chunk of chunks) collected.add(chunk);
      const expected = Buffer.concat(chunks);
      return collected.size === expected.length && collected.take().equals(expected) && collected.size === 0;
    }),
  );
  t.end();
});

await tap.test("CollectedBytes keeps a body of one chunk as it is", (t) => {
  const collected = new CollectedBytes();
  const chunk = Buffer.from("one");
  collected.add(chunk);
  t.equal(collected.take(), chunk);
  t.end();
});

function used(): number {
  const { arrayBuffers, heapUsed } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

await tap.test("CollectedBytes takes little more memory than the bytes of chunks of one byte", (t) => {
  const collected = new CollectedBytes();
  const BYTES = 4_000_000;
  const before = used();
  const chunk = Buffer.from("x");
  for (let sent = 0; sent < BYTES; sent++) collected.add(chunk);
  // Buffers of one byte each would take two hundred times as much.
  const grown = used() - before;
  t.ok(grown < 3 * BYTES, `${grown} bytes`);
  t.equal(collected.take().length, BYTES);
  t.end();
});
