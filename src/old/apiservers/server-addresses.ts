import type { Clock } from "../../clock.ts";
import { ApiClient } from "../kube/client.ts";
import { versionIn } from "../kube/discovery.ts";
import type { Retrier } from "../retry/retrier.ts";
import type { SeenServers } from "./seen-servers.ts";

/** What {@link ServerAddresses} need. */
export interface ServerAddressesOptions {
  /** Its credentials are used at each address. */
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly retrier: Retrier;
  readonly seen: SeenServers;
  /** Of a request, in milliseconds. */
  readonly timeoutMs: number;
}

/** An API server that does not answer within this time is not there, in milliseconds. */
const ANSWER_TIMEOUT_MS = 5_000;

/** The API servers at addresses of their own, with a connection to each. */
export class ServerAddresses {
  readonly #options: ServerAddressesOptions;
  readonly #clients = new Map<string, ApiClient>();
  readonly #answered = new Set<string>();

  constructor(options: ServerAddressesOptions) {
    this.#options = options;
  }

  /** Asks the API server at that address. */
  clientAt(url: string): ApiClient {
    const known = this.#clients.get(url);
    if (known !== undefined) {
      return known;
    }
    const { client, timeoutMs } = this.#options;
    const at = new ApiClient(client.transport.another({ server: url, timeoutMs }));
    this.#clients.set(url, at);
    return at;
  }

  /** Whether an API server has answered at that address. */
  hasAnswered(url: string): boolean {
    return this.#answered.has(url);
  }

  /**
   * Whether each of them answers now.
   * @throws the signal's reason where it is aborted.
   */
  async areReachable(urls: readonly string[], signal: AbortSignal): Promise<boolean> {
    const results = await Promise.all(urls.map((url) => this.#isReachable(url, signal)));
    signal.throwIfAborted();
    return results.every(Boolean);
  }

  /** Ends all connections. */
  async close(): Promise<void> {
    await Promise.all([...this.#clients.values()].map(({ transport }) => transport.close()));
  }

  /** One that cannot be reached from here is asked through the address of the kubeconfig: it is silent only where it has answered before. */
  async #isReachable(url: string, signal: AbortSignal): Promise<boolean> {
    const { clock, retrier, seen } = this.#options;
    const { transport } = this.clientAt(url);
    const timeout = AbortSignal.any([signal, clock.timeout(ANSWER_TIMEOUT_MS)]);
    const ask = async (): Promise<void> => {
      // What stands before it may answer anything in its place.
      const { body } = await transport.request({ method: "GET", path: "/version", signal: timeout });
      versionIn(body);
    };
    try {
      await retrier.with({ onRetry: () => {} }).run(ask, timeout);
      this.#answered.add(url);
      return true;
    } catch {
      if (this.#answered.has(url) && !signal.aborted) {
        seen.silent();
      }
      return false;
    }
  }
}
