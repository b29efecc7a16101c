import { type KubeConfig, RequestContext } from "@kubernetes/client-node";
import { Agent, type Dispatcher } from "undici";
import type { Clock } from "../clock.ts";
import { KsvmError, messageOf } from "../errors.ts";
import { withoutCachedCredentials } from "./config.ts";

/** What a request is sent with. */
export interface Session {
  readonly headers: Readonly<Record<string, string>>;
  readonly dispatcher: Dispatcher;
  /** On the monotonic clock. */
  readonly since: number;
}

/**
 * How long credentials are used before client-node is asked for them again. It caches tokens by their expiry, so that
 * asking is cheap; service account tokens on disk are renewed by the kubelet well before they expire.
 */
const SESSION_LIFETIME_MS = 60_000;

/** The credentials and connections for one API server, as client-node's KubeConfig makes them. */
export class Sessions {
  readonly #server: string;
  readonly #clock: Clock;
  #config: KubeConfig;
  #current: Promise<Session> | undefined;
  #retired: Dispatcher | undefined;

  constructor(config: KubeConfig, server: string, clock: Clock) {
    this.#config = config;
    this.#server = server;
    this.#clock = clock;
  }

  /**
   * The session to send a request with.
   * @throws {KsvmError} Unauthorized where there are no credentials, as where an exec plugin fails.
   */
  async get(): Promise<Session> {
    this.#current ??= this.#authenticate();
    const current = this.#current;
    const session = await current;
    if (this.#clock.monotonic() - session.since < SESSION_LIFETIME_MS) {
      return session;
    }
    this.#drop(current, session);
    return this.get();
  }

  /** The session to try again with after the API server refused the credentials of `refused`: none is cached. */
  async renew(refused: Session): Promise<Session> {
    const current = this.#current;
    if (current !== undefined && (await current) === refused) {
      this.#config = withoutCachedCredentials(this.#config);
      this.#drop(current, refused);
    }
    return this.get();
  }

  /** Ends all connections once the requests under way are done. */
  async close(): Promise<void> {
    const session = await this.#current?.catch(() => undefined);
    this.#current = undefined;
    await Promise.all([session?.dispatcher.close(), this.#closeRetired()]);
  }

  /**
   * A request that was handed the old session may not have been sent yet, so its dispatcher is closed one session
   * later. Watches keep their connections: close() waits for what is under way.
   */
  #drop(current: Promise<Session>, session: Session): void {
    // Many requests find out at the same time; the first of them drops it.
    if (this.#current === current) {
      this.#current = undefined;
      void this.#closeRetired();
      this.#retired = session.dispatcher;
    }
  }

  async #closeRetired(): Promise<void> {
    const retired = this.#retired;
    this.#retired = undefined;
    await retired?.close();
  }

  async #authenticate(): Promise<Session> {
    const context = new RequestContext(this.#server, "GET");
    try {
      await this.#config.applySecurityAuthentication(context);
    } catch (error) {
      this.#current = undefined;
      const text = `Cannot authenticate: no credentials for ${this.#server}: ${messageOf(error)}`;
      throw new KsvmError("Unauthorized", text, { cause: error });
    }
    return {
      headers: trimmed(context.getHeaders()),
      // client-node sets none where the system's own trust store is enough.
      dispatcher: (context.getDispatcher() ?? new Agent()).compose(overHttp1),
      since: this.#clock.monotonic(),
    };
  }
}

/**
 * Keeps undici from HTTP/2, which it would agree on with any API server. One stream that ends badly there can take the
 * session down, and with it all requests on their way; and sixteen connections are no slower than sixteen streams.
 */
function overHttp1(dispatch: Dispatcher.Dispatch): Dispatcher.Dispatch {
  const http1 = { allowH2: false };
  return (options, handler) => dispatch({ ...options, ...http1 }, handler);
}

/** A token file often ends in a line break, which no header may hold. */
function trimmed(headers: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, value.trim()]));
}
