import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import type { Test } from "tap";

/** The way of an API server to etcd, on which its requests can be held. */
export interface HeldEtcd {
  /** A value of --etcd-servers. */
  readonly url: string;
  /** Holds every request from now on. The connections stay alive: what is no request passes. */
  hold(): void;
  /** Sends what was held, in its order. */
  letGo(): void;
}

const PREFACE_BYTES = 24;
const HEADER_BYTES = 9;
const [DATA, HEADERS, RST_STREAM, CONTINUATION] = [0, 1, 3, 9];
const OF_REQUESTS = new Set([DATA, HEADERS, RST_STREAM, CONTINUATION]);

/** Starts a way to etcd that knows the frames of HTTP/2 (RFC 9113, section 4.1). It ends with the test. */
export async function holdableEtcd(t: Test, etcdUrl: string): Promise<HeldEtcd> {
  const connections = new Set<Connection>();
  let isHeld = false;
  const server = createServer((client) => {
    const upstream = connect(Number(new URL(etcdUrl).port), "127.0.0.1");
    const connection = new Connection(client, upstream, () => isHeld);
    connections.add(connection);
    client.on("close", () => connections.delete(connection));
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
      isHeld = true;
    },
    letGo: () => {
      isHeld = false;
      for (const connection of connections) {
        connection.flush();
      }
    },
  };
}

class Connection {
  readonly #client: Socket;
  readonly #upstream: Socket;
  readonly #isHeld: () => boolean;
  #frames: Buffer[] = [];
  #rest: Buffer = Buffer.alloc(0);
  #isOpened = false;

  constructor(client: Socket, upstream: Socket, isHeld: () => boolean) {
    this.#client = client;
    this.#upstream = upstream;
    this.#isHeld = isHeld;
    upstream.pipe(client);
    client.on("data", (chunk: Buffer) => this.#take(chunk));
    for (const socket of [client, upstream]) {
      socket.on("error", () => this.end());
      socket.on("close", () => this.end());
    }
  }

  flush(): void {
    for (const frame of this.#frames) {
      this.#upstream.write(frame);
    }
    this.#frames = [];
  }

  end(): void {
    this.#client.destroy();
    this.#upstream.destroy();
  }

  #take(chunk: Buffer): void {
    this.#rest = Buffer.concat([this.#rest, chunk]);
    if (!this.#isOpened && this.#rest.length >= PREFACE_BYTES) {
      this.#isOpened = true;
      this.#upstream.write(this.#cut(PREFACE_BYTES));
    }
    while (this.#isOpened && this.#rest.length >= HEADER_BYTES) {
      const length = HEADER_BYTES + this.#rest.readUIntBE(0, 3);
      if (this.#rest.length < length) {
        return;
      }
      this.#pass(this.#cut(length));
    }
  }

  #cut(length: number): Buffer {
    const part = this.#rest.subarray(0, length);
    this.#rest = this.#rest.subarray(length);
    return part;
  }

  #pass(frame: Buffer): void {
    if (this.#isHeld() && OF_REQUESTS.has(frame[3] ?? -1)) {
      this.#frames.push(frame);
    } else {
      this.#upstream.write(frame);
    }
  }
}
