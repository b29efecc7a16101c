import { EventEmitter } from "node:events";
import type { Server } from "node:http";
import tap from "tap";
import { connectionToClose, limitConnections, type OpenConnection } from "../../src/serving/connection-limits.ts";

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

/** A connection as node:net tells of it; two from one port at once are a matter of microseconds on a real one. */
class Connection extends EventEmitter {
  readonly remoteAddress = "10.0.0.1";
  readonly remotePort: number;
  isDestroyed = false;

  constructor(remotePort: number) {
    super();
    this.remotePort = remotePort;
  }

  destroy(): void {
    this.isDestroyed = true;
  }
}

await tap.test("limitConnections() counts a connection that came before the one of the same port was closed", (t) => {
  const server = new EventEmitter();
  limitConnections(server as Server, { total: 10, perAddress: 1 });
  const [first, again, next] = [new Connection(7), new Connection(7), new Connection(8)];
  server.emit("connection", first);
  server.emit("connection", again);
  first.emit("close");
  t.equal(again.isDestroyed, false);
  server.emit("connection", next);
  t.equal(again.isDestroyed, true, "it was not forgotten");
  t.end();
});
