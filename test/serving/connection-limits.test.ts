import tap from "tap";
import { connectionToClose, type OpenConnection } from "../../src/serving/connection-limits.ts";

const LIMITS = { total: 5, perAddress: 3 };

/** `a!` is a busy connection of `a`, and so on. */
function open(...names: readonly string[]): readonly OpenConnection[] {
  return names.map((name) => ({ address: name.charAt(0), isBusy: name.endsWith("!") }));
}

/** The index of the one to close. */
function closes(connections: readonly OpenConnection[], address: string): number | undefined {
  const found = connectionToClose(connections, address, LIMITS);
  return found === undefined ? undefined : connections.indexOf(found);
}

await tap.test("connectionToClose() closes none as long as there is room", (t) => {
  t.equal(closes([], "a"), undefined);
  t.equal(closes(open("a", "a"), "a"), undefined);
  t.equal(closes(open("a", "a", "a", "b"), "b"), undefined, "another address has as many as it may");
  t.end();
});

await tap.test("connectionToClose() closes one of the same address where that has as many as it may", (t) => {
  t.equal(closes(open("b", "a", "a", "a"), "a"), 1, "the one that is open for longest");
  t.equal(closes(open("a!", "a", "a"), "a"), 1, "of those that are idle");
  t.equal(closes(open("a!", "a!", "a!"), "a"), 0, "or of all");
  t.end();
});

await tap.test("connectionToClose() closes one of the address with the most where there are too many", (t) => {
  t.equal(closes(open("a", "b", "b", "b", "c"), "a"), 1);
  t.equal(closes(open("a", "b!", "b!", "b", "c"), "d"), 3);
  t.equal(closes(open("a", "a", "b", "b", "c"), "b"), 2, "its own where no other has more");
  t.end();
});
