import type { Clock } from "../clock.ts";

/** A request without a whole answer yet. */
export interface PendingRequest {
  /** Method and path. */
  readonly what: string;
  /** When it was sent, on the monotonic clock. */
  readonly since: number;
}

/** The requests of one run that are under way. */
export class PendingRequests {
  readonly #clock: Clock;
  /** In the order in which they were sent. */
  readonly #requests = new Set<PendingRequest>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Tells of a request. @returns what to call when it is over */
  begin(what: string): () => void {
    const request = { what, since: this.#clock.monotonic() };
    this.#requests.add(request);
    return () => void this.#requests.delete(request);
  }

  /** The one that has been under way for the longest time. */
  oldest(): PendingRequest | undefined {
    const [oldest] = this.#requests;
    return oldest;
  }
}
