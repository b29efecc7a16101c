import type { Readable } from "node:stream";

/** Limits of {@link receiveBody}. */
export interface BodyLimits {
  /** Bytes of the largest body that is kept. */
  readonly bodyLimit: number;
  /** Milliseconds from the request's headers to the end of its body. */
  readonly bodyTimeoutMs: number;
}

/** The bytes of a body, or, of one that is over the limit, how it began. */
export type ReceivedBody =
  | { readonly bytes: Buffer }
  | { readonly bytes: undefined; readonly head: Buffer; readonly length: number };

/** Why no body came; `statusCode` is the HTTP status to answer. */
export class BodyError extends Error {
  override readonly name = "BodyError";
  readonly statusCode: 400 | 408 | 413;

  constructor(statusCode: 400 | 408 | 413, message: string) {
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

/**
 * Reads the body of a request.
 * @throws {BodyError} 408 where it comes too slowly, 413 where it is larger than anything worth reading to the end, 400
 * where it breaks off.
 */
export async function receiveBody(
  payload: Readable,
  contentLength: number | undefined,
  limits: BodyLimits,
): Promise<ReceivedBody> {
  const { bodyLimit, bodyTimeoutMs } = limits;
  const collector = new Collector(contentLength ?? 0, bodyLimit);
  const { promise, resolve, reject } = Promise.withResolvers<ReceivedBody>();
  const timer = setTimeout(() => reject(new BodyError(408, "the body came too slowly")), bodyTimeoutMs);
  const onData = (chunk: Buffer): void => {
    collector.add(chunk);
    if (collector.length > DISCARDED_LIMITS * bodyLimit) {
      reject(new BodyError(413, "the body goes on far beyond the limit"));
    }
  };
  const onEnd = (): void => resolve(collector.result());
  const onClose = (): void => reject(new BodyError(400, "the body broke off"));
  payload.on("data", onData).once("end", onEnd).once("error", onClose).once("close", onClose);
  try {
    return await promise;
  } finally {
    clearTimeout(timer);
    payload.off("data", onData).off("end", onEnd).off("close", onClose).pause();
  }
}

/** Puts a body together in one buffer, as long as it is within the limit. */
class Collector {
  /** Bytes that have come. */
  length = 0;
  readonly #limit: number;
  #buffer: Buffer;

  /** Memory that is only announced is not touched, and so not used, before the bytes come. */
  constructor(announced: number, limit: number) {
    this.#limit = limit;
    this.#buffer = Buffer.allocUnsafe(Math.min(Math.max(announced, HEAD_BYTES), limit));
  }

  add(chunk: Buffer): void {
    const end = this.length + chunk.length;
    if (end > this.#buffer.length && end <= this.#limit) {
      const larger = Buffer.allocUnsafe(Math.min(Math.max(end, 2 * this.#buffer.length), this.#limit));
      this.#buffer.copy(larger, 0, 0, this.length);
      this.#buffer = larger;
    }
    chunk.copy(this.#buffer, Math.min(this.length, this.#buffer.length));
    this.length = end;
  }

  result(): ReceivedBody {
    if (this.length <= this.#limit) {
      return { bytes: this.#buffer.subarray(0, this.length) };
    }
    return { bytes: undefined, head: Buffer.from(this.#buffer.subarray(0, HEAD_BYTES)), length: this.length };
  }
}
