import type { Clock } from "../../clock.ts";

/** A request without a whole answer yet. */
export interface PendingRequest {
  /** Method and path. */
  readonly what: string;
  /** When it was sent, on the monotonic clock. */
  readonly since: number;
}

/** Told of a request that is over: method and path, and for how many milliseconds it was under way. */
export type OnRequestEnd = (what: string, ms: number) => void;

/** The requests of one run that are under way. */
export class PendingRequests {
  readonly #clock: Clock;
  readonly #onEnd: OnRequestEnd;
  /** In the order in which they were sent. */
  readonly #requests = new Set<PendingRequest>();

  constructor(clock: Clock, onEnd: OnRequestEnd = () => {}) {
    this.#clock = clock;
    this.#onEnd = onEnd;
  }

  /** Tells of a request. @returns what to call when it is over */
  begin(what: string): () => void {
    const request = { what, since: this.#clock.monotonic() };
    this.#requests.add(request);
    return () => {
      this.#requests.delete(request);
      this.#onEnd(what, this.#clock.monotonic() - request.since);
    };
  }

  /** The one that has been under way for the longest time. */
  oldest(): PendingRequest | undefined {
    const [oldest] = this.#requests;
    return oldest;
  }
}
