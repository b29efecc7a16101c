import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import type { Test } from "tap";

/** The way of an API server to etcd, on which its requests can be held. */
export interface HeldEtcd {
  /** A value of --etcd-servers. */
  readonly url: string;
  /** Holds every request from now on. The connections stay alive: what is no request passes. */
  hold(): void;
  /** Whether a request with this text is held. */
  holds(text: string): boolean;
  /** Sends what was held, in its order, also of an API server that has ended since: it was on its way. */
  letGo(): void;
  /** Holds from now on what etcd tells those that watch keys with this text; nothing else. */
  holdWatches(of: string): void;
  /** Sends what was held of watches, in its order. */
  letWatchesGo(): void;
}

/** What is held at this moment. */
interface Hold {
  requests: boolean;
  /** In the keys of watches; `undefined` where none are held. */
  watchesOf: string | undefined;
}

const PREFACE_BYTES = 24;
const HEADER_BYTES = 9;
const [DATA, HEADERS, RST_STREAM, CONTINUATION] = [0, 1, 3, 9];
/** A flag of DATA: a client that watches leaves its side of the stream open. */
const END_STREAM = 1;
const OF_REQUESTS = new Set([DATA, HEADERS, RST_STREAM, CONTINUATION]);

/** Starts a way to etcd that knows the frames of HTTP/2 (RFC 9113, section 4.1). It ends with the test. */
export async function holdableEtcd(t: Test, etcdUrl: string): Promise<HeldEtcd> {
  const connections = new Set<Connection>();
  const held: Hold = { requests: false, watchesOf: undefined };
  const server = createServer({ noDelay: true }, (client) => {
    const upstream = connect({ port: Number(new URL(etcdUrl).port), host: "127.0.0.1", noDelay: true });
    const connection = new Connection(client, upstream, held);
    connections.add(connection);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => {
    server.close();
    for (const connection of connections) {
      connection.end();
    }
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    hold: () => {
      held.requests = true;
    },
    holds: (text) => [...connections].some((connection) => connection.holds(text)),
    letGo: () => {
      held.requests = false;
      for (const connection of connections) {
        connection.flush();
      }
    },
    holdWatches: (of) => {
      held.watchesOf = of;
    },
    letWatchesGo: () => {
      held.watchesOf = undefined;
      for (const connection of connections) {
        connection.flushWatches();
      }
    },
  };
}

class Connection {
  readonly #client: Socket;
  readonly #upstream: Socket;
  readonly #held: Hold;
  /** What the watches of each stream are of. */
  readonly #watched = new Map<number, string>();
  #requests: Buffer[] = [];
  #told: Buffer[] = [];

  constructor(client: Socket, upstream: Socket, held: Hold) {
    this.#client = client;
    this.#upstream = upstream;
    this.#held = held;
    const asked = new FrameReader(PREFACE_BYTES, (bytes) => this.#ask(bytes));
    const told = new FrameReader(0, (bytes) => this.#tell(bytes));
    client.on("data", (chunk: Buffer) => asked.take(chunk));
    upstream.on("data", (chunk: Buffer) => told.take(chunk));
    for (const socket of [client, upstream]) {
      // What follows it says whether the other end goes, too.
      socket.on("error", () => undefined);
      socket.on("close", () => {
        if (this.#requests.length === 0) this.end();
      });
    }
  }

  holds(text: string): boolean {
    return this.#requests.some((frame) => frame.includes(text));
  }

  flush(): void {
    for (const frame of this.#requests.splice(0)) {
      this.#upstream.write(frame);
    }
  }

  flushWatches(): void {
    for (const frame of this.#told.splice(0)) {
      this.#client.write(frame);
    }
  }

  end(): void {
    this.#client.destroy();
    this.#upstream.destroy();
  }

  #ask(frame: Buffer): void {
    const type = frame[3] ?? -1;
    if (type === DATA && ((frame[4] ?? 0) & END_STREAM) === 0) {
      const stream = streamOf(frame);
      this.#watched.set(stream, `${this.#watched.get(stream) ?? ""} ${frame.toString("latin1", HEADER_BYTES)}`);
    }
    if (this.#held.requests && OF_REQUESTS.has(type)) {
      this.#requests.push(frame);
    } else {
      this.#upstream.write(frame);
    }
  }

  #tell(frame: Buffer): void {
    const { watchesOf } = this.#held;
    const isHeld = watchesOf !== undefined && this.#watched.get(streamOf(frame))?.includes(watchesOf) === true;
    if (isHeld && frame[3] === DATA) {
      this.#told.push(frame);
    } else {
      this.#client.write(frame);
    }
  }
}

function streamOf(frame: Buffer): number {
  return frame.readUInt32BE(5) & 0x7fffffff;
}

/** Cuts what arrives into frames, and passes each on; what comes before the first as it is. */
class FrameReader {
  readonly #pass: (bytes: Buffer) => void;
  #prefaceBytes: number;
  #rest: Buffer = Buffer.alloc(0);

  constructor(prefaceBytes: number, pass: (bytes: Buffer) => void) {
    this.#prefaceBytes = prefaceBytes;
    this.#pass = pass;
  }

  take(chunk: Buffer): void {
    this.#rest = Buffer.concat([this.#rest, chunk]);
    for (let length = this.#next(); length !== undefined && this.#rest.length >= length; length = this.#next()) {
      const bytes = this.#rest.subarray(0, length);
      this.#rest = this.#rest.subarray(length);
      this.#prefaceBytes = 0;
      this.#pass(bytes);
    }
  }

  /** How many bytes belong together; `undefined` where it cannot be told yet. */
  #next(): number | undefined {
    if (this.#prefaceBytes > 0) return this.#prefaceBytes;
    return this.#rest.length < HEADER_BYTES ? undefined : HEADER_BYTES + this.#rest.readUIntBE(0, 3);
  }
}
