import { IDENTITY_SELECTOR } from "../../../src/apiservers/control-plane-objects.ts";
import type { ModelRequest } from "../model/types.ts";
import type { OnExchange } from "./network.ts";

/** Who sends a request, and when. */
interface Sender {
  readonly user: string;
  readonly at: number;
  /** Told how it ended, too. */
  readonly ended: ReturnType<OnExchange>;
}

/** When processes looked at the identity Leases: which of the API servers that left later they know of. */
export class LeaseLooks {
  /** By users: when the last look was asked for that an API server answered. */
  readonly #lastAt = new Map<string, number>();
  readonly #false = new WeakSet<ModelRequest>();

  /** Follows a request of a process. @returns what is told how it ended */
  follow(request: ModelRequest, { user, at, ended }: Sender): ReturnType<OnExchange> {
    const { query } = request;
    if (query.get("labelSelector") !== IDENTITY_SELECTOR || query.has("watch")) return ended;
    return (answer) => {
      if (answer?.status === 200 && !this.#false.has(request)) this.#lastAt.set(user, at);
      ended(answer);
    };
  }

  /** Something between answers it in the place of an API server. */
  answeredFalsely(request: ModelRequest): void {
    this.#false.add(request);
  }

  /** Who has looked since then. */
  usersSince(at: number): ReadonlySet<string> {
    return new Set([...this.#lastAt].filter(([, lastAt]) => lastAt > at).map(([user]) => user));
  }

  /** Whether a process has looked since then. */
  hasSince(user: string, at: number): boolean {
    return (this.#lastAt.get(user) ?? Number.NEGATIVE_INFINITY) > at;
  }
}
