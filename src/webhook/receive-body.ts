import type { Readable } from "node:stream";

/** Limits of {@link receiveBody}. */
export interface BodyLimits {
  /** Bytes of the largest body that is kept. */
  readonly bodyLimit: number;
  /** Milliseconds from the request's headers to the end of its body. */
  readonly bodyTimeoutMs: number;
}

/** The bytes of a body, or, of one that is over the limit, how it began. */
export type ReceivedBody = (
  | { readonly bytes: Buffer }
  | { readonly bytes: undefined; readonly head: Buffer; readonly length: number }
) & {
  /** Gives the memory back, once; it must not be read after that. */
  readonly release: () => void;
};

/** Why no body came; `statusCode` is the HTTP status to answer. */
class BodyError extends Error {
  override readonly name = "BodyError";
  readonly statusCode: 400 | 408 | 413 | 503;

  constructor(statusCode: 400 | 408 | 413 | 503, message: string) {
    super(message);
    this.statusCode = statusCode;
  }
}

/** Bytes that are kept of a body over the limit: its uid is in the first hundred. */
const HEAD_BYTES = 1_024;

/**
 * A body over the limit is read to its end, up to this many times the limit, and thrown away: a client that is still
 * writing when the answer comes may take the closed connection for a failure and never read it.
 */
const DISCARDED_LIMITS = 4;

/** What the bodies of a server share. */
export interface BodyMemory {
  readonly buffers: BodyBuffers;
  readonly budget: BodyBudget;
}

/**
 * Reads the body of a request, from a client at that address.
 * @throws {BodyError} 408 where it comes too slowly, 413 where it is larger than anything worth reading to the end, 400
 * where it breaks off, 503 where all bodies together need more memory than there is for them.
 */
export async function receiveBody(
  payload: Readable,
  contentLength: number | undefined,
  { bodyLimit, bodyTimeoutMs, buffers, budget, address }: BodyLimits & BodyMemory & { readonly address: string },
): Promise<ReceivedBody> {
  const collector = new Collector(contentLength ?? 0, bodyLimit, buffers);
  const { promise, resolve, reject } = Promise.withResolvers<ReceivedBody>();
  const timer = setTimeout(() => reject(new BodyError(408, "the body came too slowly")), bodyTimeoutMs);
  const held: HeldBody = {
    address,
    get bytes() {
      return collector.heldBytes;
    },
    since: performance.now(),
    end: () => reject(new BodyError(503, "the memory for bodies is used up")),
  };
  budget.add(held);
  const onData = (chunk: Buffer): void => {
    collector.add(chunk);
    budget.keep(performance.now());
    if (collector.length > DISCARDED_LIMITS * bodyLimit) {
      reject(new BodyError(413, "the body continues far beyond the limit"));
    }
  };
  const onClose = (): void => reject(new BodyError(400, "the body broke off"));
  const onEnd = (): void => {
    payload.off("close", onClose);
    resolve(collector.result());
  };
  payload.on("data", onData).once("end", onEnd).once("error", onClose).once("close", onClose);
  try {
    return await promise;
  } catch (error) {
    collector.discard();
    throw error;
  } finally {
    budget.remove(held);
    clearTimeout(timer);
    payload.off("data", onData).off("end", onEnd).off("close", onClose).pause();
  }
}

/**
 * Buffers that are used again: a review of a megabyte after the other would otherwise leave megabytes of garbage, which
 * count for little in the heap and are collected late.
 */
export class BodyBuffers {
  readonly #free: Buffer<ArrayBuffer>[] = [];

  /** One of `length` bytes or more. */
  take(length: number): Buffer<ArrayBuffer> {
    const index = this.#free.findIndex((buffer) => buffer.length >= length);
    const [found] = index === -1 ? [] : this.#free.splice(index, 1);
    return found ?? Buffer.allocUnsafeSlow(Math.ceil(length / BUFFER_STEP) * BUFFER_STEP);
  }

  /** Takes one back, whose bytes are gone after that. Of those that are worth keeping the largest ones stay. */
  give(buffer: Buffer<ArrayBuffer>): void {
    if (buffer.length > MAX_KEPT_BYTES) {
      free(buffer);
      return;
    }
    this.#free.push(buffer);
    this.#free.sort((a, b) => a.length - b.length);
    const smallest = this.#free.length > MAX_FREE_BUFFERS ? this.#free.shift() : undefined;
    if (smallest !== undefined) {
      free(smallest);
    }
  }
}

/** Gives the memory back now: the garbage collector would, when several of the largest have come together. */
function free({ buffer }: Buffer<ArrayBuffer>): void {
  buffer.transfer(0);
}

/** Buffers for as many reviews at once, and for those of nearly the same size. */
const MAX_FREE_BUFFERS = 4;
const BUFFER_STEP = 256 * 1_024;
/** Larger ones are for the few reviews that need them, and not for the memory that is used between them. */
const MAX_KEPT_BYTES = 2 * 1_024 * 1_024;

/** Puts a body together in one buffer, as long as it is within the limit. */
class Collector {
  /** Bytes that have come. */
  length = 0;
  readonly #limit: number;
  readonly #buffers: BodyBuffers;
  #buffer: Buffer<ArrayBuffer>;

  /** Memory that is only announced is not touched, and so not used, before the bytes come. */
  constructor(announced: number, limit: number, buffers: BodyBuffers) {
    this.#limit = limit;
    this.#buffers = buffers;
    this.#buffer = buffers.take(Math.min(Math.max(announced, HEAD_BYTES), limit));
  }

  add(chunk: Buffer): void {
    const end = this.length + chunk.length;
    if (end > this.#buffer.length && end <= this.#limit) {
      const larger = this.#buffers.take(Math.min(Math.max(end, 2 * this.#buffer.length), this.#limit));
      this.#buffer.copy(larger, 0, 0, this.length);
      this.discard();
      this.#buffer = larger;
    }
    if (this.length < this.#buffer.length) {
      chunk.copy(this.#buffer, this.length);
    }
    this.length = end;
  }

  /** Bytes in memory: what is announced and has not come takes none. */
  get heldBytes(): number {
    return Math.min(this.length, this.#buffer.length);
  }

  result(): ReceivedBody {
    let isReleased = false;
    // Given back twice, a buffer would be handed out twice.
    const release = (): void => {
      if (!isReleased) {
        isReleased = true;
        this.discard();
      }
    };
    if (this.length <= this.#limit) {
      return { bytes: this.#buffer.subarray(0, this.length), release };
    }
    return { bytes: undefined, head: this.#buffer.subarray(0, HEAD_BYTES), length: this.length, release };
  }

  discard(): void {
    this.#buffers.give(this.#buffer);
  }
}

/** A body that is being received. */
export interface HeldBody {
  /** Of the client that sends it. */
  readonly address: string;
  /** Bytes of it that are in memory. */
  readonly bytes: number;
  /** When its first byte was awaited, in milliseconds of the same clock as `now`. */
  readonly since: number;
  /** Ends it, and gives its memory back. */
  end(): void;
}

/**
 * One budget of memory for all bodies that are being received. Where it is used up, a body ends of the address whose
 * bodies hold the most: the one that has held the most memory for the longest time. So no client keeps another one from
 * its answer.
 */
export class BodyBudget {
  readonly #maxBytes: number;
  readonly #bodies = new Set<HeldBody>();

  /** @param maxBytes for all bodies together */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  add(body: HeldBody): void {
    this.#bodies.add(body);
  }

  remove(body: HeldBody): void {
    this.#bodies.delete(body);
  }

  /** Ends bodies until the others fit. `now` is in milliseconds. */
  keep(now: number): void {
    let held = 0;
    for (const { bytes } of this.#bodies) held += bytes;
    while (held > this.#maxBytes) {
      const victim = this.#costliest(now);
      if (victim === undefined) return;
      held -= victim.bytes;
      this.#bodies.delete(victim);
      victim.end();
    }
  }

  #costliest(now: number): HeldBody | undefined {
    const address = this.#largestAddress();
    let found: HeldBody | undefined;
    let most = -1;
    for (const body of this.#bodies) {
      const cost = body.bytes * (now - body.since);
      if (body.address === address && cost > most) {
        most = cost;
        found = body;
      }
    }
    return found;
  }

  #largestAddress(): string | undefined {
    const held = new Map<string, number>();
    for (const { address, bytes } of this.#bodies) held.set(address, (held.get(address) ?? 0) + bytes);
    const most = Math.max(...held.values());
    return [...held].find(([, bytes]) => bytes === most)?.[0];
  }
}
