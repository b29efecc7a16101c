import type { Clock } from "../../clock.ts";
import type { ApiClient } from "./client.ts";

/** The time that replicas share: a heartbeat is written by one of them and judged by the next. */
export interface SharedClock {
  /** Measures it, where that was not done just now. @throws {ApiError | TransportError} */
  readonly refresh: (signal: AbortSignal) => Promise<void>;
  /** Milliseconds since the Unix epoch. */
  readonly now: () => number;
}

/** Milliseconds for which a measurement is good: clocks drift by far less. */
const GOOD_FOR_MS = 30_000;

/**
 * The API server's clock, by the `Date` header of its answers. The clock of a replica that was wrong would make a heartbeat
 * look fresh to the next leader, however long no replica looked, and a certificate look expired that API servers accept.
 */
export class ServerClock implements SharedClock {
  readonly #client: ApiClient;
  readonly #clock: Clock;
  /** `at` is on the monotonic clock. */
  #measured: { readonly serverTime: number; readonly at: number } | undefined;

  constructor(client: ApiClient, clock: Clock) {
    this.#client = client;
    this.#clock = clock;
  }

  async refresh(signal: AbortSignal): Promise<void> {
    if (this.#measured !== undefined && this.#clock.monotonic() - this.#measured.at < GOOD_FOR_MS) {
      return;
    }
    const { serverTime } = await this.#client.transport.request({ method: "GET", path: "/version", signal });
    // Every API server sends the header (net/http does); where a proxy takes it away, this clock is all there is.
    this.saw(serverTime ?? this.#clock.now());
  }

  /** Takes the measurement of an answer that came just now. @param serverTime its `Date`, where it has one */
  saw(serverTime: number | undefined): void {
    if (serverTime !== undefined) {
      this.#measured = { serverTime, at: this.#clock.monotonic() };
    }
  }

  /** This machine's clock as long as nothing was measured. */
  now(): number {
    const { serverTime, at } = this.#measured ?? { serverTime: this.#clock.now(), at: this.#clock.monotonic() };
    return serverTime + (this.#clock.monotonic() - at);
  }

  /** The same moment by this clock and by that of this machine. */
  times(): readonly number[] {
    return [this.now(), this.#clock.now()];
  }
}
