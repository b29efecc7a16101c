import { Readable } from "node:stream";
import type { Client } from "../../kube/client.ts";
import { ApiError } from "../../kube/errors.ts";
import { type ApiRequest, type ApiResponse, isStored } from "./api-request.ts";

/** Awaited before a request that stores something: resolves where it may be sent, throws where it may not. */
export type Fence = () => Promise<void>;

const NEVER = new AbortController().signal;
/** What allows the largest page: see `Client`. */
const MAX_BYTES = 64 * 2 ** 20;

/** Requests as the parts make them that are not written for {@link Client} yet. It sends them by that client. */
export class Transport {
  readonly kube: Client;
  readonly #fence: Fence | undefined;

  constructor(kube: Client, fence?: Fence) {
    this.kube = kube;
    this.#fence = fence;
  }

  /** The API server's base URL, without a slash at its end. */
  get server(): string {
    return this.kube.address;
  }

  /** The same client, and `fence` before each request that stores something. */
  fencedBy(fence: Fence): Transport {
    return new Transport(this.kube, fence);
  }

  /**
   * Sends one request and parses the JSON answer.
   * @throws {ApiError} for an answer of 300 or above, and where no usable one came; the signal's reason
   */
  async request<T>(request: ApiRequest): Promise<ApiResponse<T>> {
    return this.#answered(request, MAX_BYTES, (text) => parsed(request, text) as T);
  }

  /** Sends one request and has `read` make something of the answer's bytes, which may be `limitBytes` at the most. */
  async readBytes<T>(request: ApiRequest, limitBytes: number, read: (body: Buffer) => T): Promise<ApiResponse<T>> {
    return this.#answered(request, limitBytes, (text) => read(Buffer.from(text)));
  }

  /** Sends one request and has `read` make something of the answer's body. */
  async read<T>(request: ApiRequest, read: (body: Readable) => Promise<T>): Promise<ApiResponse<T>> {
    return this.#answered(request, MAX_BYTES, (text) => read(Readable.from([Buffer.from(text)])));
  }

  /** Opens a streaming answer, as a watch has. The caller reads or destroys it. */
  async stream(request: ApiRequest): Promise<Readable> {
    const { accept, path, query, signal = NEVER } = request;
    const over = new AbortController();
    const lines = await this.kube.lines(path, {
      signal: AbortSignal.any([signal, over.signal]),
      ...(accept === undefined ? {} : { accept }),
      ...(query === undefined ? {} : { query }),
    });
    const stream = Readable.from(withLineEnds(lines));
    const destroy = stream._destroy.bind(stream);
    // What waits for the next line, maybe for a minute, does not hear that the stream was destroyed.
    stream._destroy = (error, callback) => {
      over.abort();
      destroy(error, callback);
    };
    return stream;
  }

  async #answered<T>(
    request: ApiRequest,
    maxBytes: number,
    read: (text: string) => T | Promise<T>,
  ): Promise<ApiResponse<T>> {
    const { accept, body, contentType, method, path, query, signal = NEVER, timeoutMs } = request;
    if (isStored(request)) await this.#fence?.();
    const options = {
      signal,
      ...(accept === undefined ? {} : { accept }),
      ...(query === undefined ? {} : { query }),
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
    };
    const answer = await this.kube.answer(method, path, options, { body, contentType, isStream: false, maxBytes });
    try {
      return { status: answer.status, body: await read(answer.text), serverTime: answer.date };
    } catch (error) {
      // What is read of an answer that is none of an API server.
      if (error instanceof SyntaxError) throw unusable(request, error);
      throw error;
    }
  }
}

function parsed(request: ApiRequest, text: string): unknown {
  const value: unknown = JSON.parse(text);
  if (typeof value !== "object" || value === null) throw unusable(request);
  return value;
}

function unusable({ method, path }: ApiRequest, cause?: unknown): ApiError {
  return new ApiError(`${method} ${path}`, 0, "the answer is no JSON object", { code: "ApiRequestFailed", cause });
}

async function* withLineEnds(lines: AsyncIterable<string>): AsyncGenerator<Buffer> {
  for await (const line of lines) yield Buffer.from(`${line}\n`);
}
