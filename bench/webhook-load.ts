import { once } from "node:events";
import { connect, type TLSSocket } from "node:tls";

/** Where the webhook listens, and whom to trust. */
export interface LoadTarget {
  readonly port: number;
  readonly caPem: string;
}

/** What a load saw. */
export interface LoadResult {
  readonly requestsPerSecond: number;
  /** Milliseconds from the first byte that is sent to the last one that came back. */
  readonly p50: number;
  readonly p99: number;
  readonly longest: number;
  readonly requests: number;
}

/**
 * Sends a review again and again for some seconds, on so many connections, one at a time on each. It speaks the little
 * of HTTP/1.1 that it takes by itself: what the client costs is part of every figure.
 * @throws {Error} for any answer but a denial with status 200
 */
export async function sendLoad(
  target: LoadTarget,
  review: Buffer,
  options: { readonly connections: number; readonly seconds: number; readonly signal: AbortSignal },
): Promise<LoadResult> {
  const { connections, seconds, signal } = options;
  const clients = await Promise.all(Array.from({ length: connections }, () => Client.connect(target)));
  const request = Buffer.concat([
    Buffer.from(
      `POST /validate?timeout=5s HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n` +
        `Content-Type: application/json\r\nContent-Length: ${review.length}\r\n\r\n`,
    ),
    review,
  ]);
  const times: number[] = [];
  const begun = performance.now();
  const end = begun + seconds * 1_000;
  await Promise.all(
    clients.map(async (client) => {
      while (performance.now() < end) {
        signal.throwIfAborted();
        const sentAt = performance.now();
        await client.send(request);
        times.push(performance.now() - sentAt);
      }
      client.close();
    }),
  );
  const took = (performance.now() - begun) / 1_000;
  times.sort((a, b) => a - b);
  const at = (part: number): number => times[Math.min(times.length - 1, Math.floor(times.length * part))] ?? Number.NaN;
  return {
    requestsPerSecond: times.length / took,
    p50: at(0.5),
    p99: at(0.99),
    longest: at(1),
    requests: times.length,
  };
}

class Client {
  readonly #socket: TLSSocket;
  #text = "";
  #answered = Promise.withResolvers<void>();

  constructor(socket: TLSSocket) {
    this.#socket = socket;
    socket.on("data", (chunk: Buffer) => this.#read(chunk.toString("latin1")));
    socket.on("error", (error) => this.#answered.reject(error));
    socket.on("close", () => this.#answered.reject(new Error("Cannot measure: the webhook closed the connection")));
    // Only the sender waits for it.
    this.#answered.promise.catch(() => undefined);
  }

  static async connect({ port, caPem }: LoadTarget): Promise<Client> {
    const socket = connect({ host: "127.0.0.1", port, ca: caPem });
    await once(socket, "secureConnect");
    socket.setNoDelay(true);
    return new Client(socket);
  }

  async send(request: Buffer): Promise<void> {
    this.#text = "";
    this.#answered = Promise.withResolvers();
    this.#socket.write(request);
    await this.#answered.promise;
  }

  close(): void {
    this.#answered.promise.catch(() => undefined);
    this.#socket.removeAllListeners("close").destroy();
  }

  #read(text: string): void {
    this.#text += text;
    const head = this.#text.indexOf("\r\n\r\n");
    const length = Number(/\r\ncontent-length: (\d+)/i.exec(this.#text)?.[1]);
    if (head === -1 || this.#text.length < head + 4 + length) return;
    const isDenial = this.#text.startsWith("HTTP/1.1 200") && this.#text.includes('"allowed":false');
    if (isDenial) this.#answered.resolve();
    else this.#answered.reject(new Error(`Cannot measure: the answer is no denial: ${this.#text.slice(0, 500)}`));
  }
}
