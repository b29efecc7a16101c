import type { Clock } from "../clock.ts";
import type { Client } from "../kube/client.ts";

/** Milliseconds for which a measurement is good: clocks drift by far less. */
const GOOD_FOR_MS = 30_000;

/**
 * The API server's clock, by the `Date` header of its answers: API servers judge the serving certificate. By the clock of
 * a replica that is wrong, a certificate would look expired that they accept.
 */
export class ServerClock {
  readonly #client: Client;
  readonly #clock: Clock;
  /** `at` is on the monotonic clock. */
  #measured: { readonly serverTime: number; readonly at: number } | undefined;

  constructor(client: Client, clock: Clock) {
    this.#client = client;
    this.#clock = clock;
  }

  /** Measures it, where that was not done just now. @throws {ApiError} */
  async refresh(signal: AbortSignal): Promise<void> {
    if (this.#measured !== undefined && this.#clock.monotonic() - this.#measured.at < GOOD_FOR_MS) return;
    const { date } = await this.#client.request("GET", "/version", { signal });
    // Every API server sends the header (net/http does). Where a proxy takes it away, this clock is all there is.
    this.saw(date ?? this.#clock.now());
  }

  /** Takes the measurement of an answer that came just now. @param serverTime its `Date`, where it has one */
  saw(serverTime: number | undefined): void {
    if (serverTime !== undefined) this.#measured = { serverTime, at: this.#clock.monotonic() };
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
