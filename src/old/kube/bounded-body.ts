import type { Readable } from "node:stream";

/** A body continues beyond its limit, in bytes, or its headers announce more. The rest of it was not read. */
export class BodyTooLarge extends Error {
  override readonly name = "BodyTooLarge";
  readonly limitBytes: number;
  /** How many bytes the headers announce, where they announce too many. */
  readonly announcedBytes: number | undefined;

  constructor(limitBytes: number, announcedBytes?: number) {
    const what = announcedBytes === undefined ? "continues" : `has ${announcedBytes} bytes,`;
    super(`the body ${what} beyond ${limitBytes} bytes`);
    this.limitBytes = limitBytes;
    this.announcedBytes = announcedBytes;
  }
}

/**
 * The chunks of a body as they arrive. A reader that stops early ends the body, and so does the limit.
 * @throws {BodyTooLarge} with the chunk that crosses the limit; the body's own error where it breaks off.
 */
export async function* boundedChunks(body: Readable, limitBytes: number): AsyncGenerator<Buffer> {
  let received = 0;
  // A `for await` that ends early destroys the stream that it reads.
  for await (const chunk of body as AsyncIterable<Buffer>) {
    received += chunk.length;
    if (received > limitBytes) {
      throw new BodyTooLarge(limitBytes);
    }
    yield chunk;
  }
}

/**
 * The whole body, in one piece.
 * @throws as {@link boundedChunks}.
 */
async function boundedBytes(body: Readable, limitBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of boundedChunks(body, limitBytes)) {
    chunks.push(chunk);
  }
  const [first] = chunks;
  return first !== undefined && chunks.length === 1 ? first : Buffer.concat(chunks);
}

/**
 * The whole text of a body of which little is expected.
 * @throws as {@link boundedChunks}.
 */
export async function boundedText(body: Readable, limitBytes: number): Promise<string> {
  return (await boundedBytes(body, limitBytes)).toString("utf8");
}
