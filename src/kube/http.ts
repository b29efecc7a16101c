/** One HTTP request to an API server. It carries no credentials: whoever sends it adds them. */
export interface HttpRequest {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** The base URL of an API server, or of what stands before several. */
  readonly address: string;
  /** Each segment is encoded. */
  readonly path: string;
  readonly query: Readonly<Record<string, string>>;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | undefined;
  /** Requests with the same one go over one connection of their own, one after the other. @default a pool */
  readonly connection?: Connection | undefined;
  /** Whether the body is wanted as lines while it arrives, as that of a watch. */
  readonly isStream: boolean;
  /** Bytes of the body at most. Of a stream: of one line. */
  readonly maxBytes: number;
  /** Milliseconds for the whole answer. Of a stream: until its headers are there. */
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** What came back, whatever its status. */
export interface HttpAnswer {
  readonly status: number;
  /** By names in lower case. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  /** The whole body; empty where it is a stream. */
  readonly text: string;
  /** The body of a stream that was answered with 200. Whoever stops reading ends it. */
  readonly lines?: AsyncIterable<string>;
}

/**
 * Sends one request. The one way to an API server, which the simulation replaces.
 *
 * @throws {ApiError} with status 0 where no whole answer came: refused, broken off, too large, or the time was up.
 * @throws the signal's reason where it is aborted.
 */
export type Send = (request: HttpRequest) => Promise<HttpAnswer>;

/**
 * A connection of its own, for questions whose answers must come from one process. Where it breaks, the next request
 * makes another one, which may lead to another process: who asks compares which process answers before and after.
 */
export class Connection {
  readonly #ended = new AbortController();

  /** Aborted once the connection is no longer needed. */
  get ended(): AbortSignal {
    return this.#ended.signal;
  }

  end(): void {
    this.#ended.abort();
  }
}
