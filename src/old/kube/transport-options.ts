import type { Clock } from "../../clock.ts";
import type { ApiRequest } from "./api-request.ts";
import type { CredentialSource } from "./connect/credentials.ts";
import type { Carrier } from "./connect/sessions.ts";
import type { PendingRequests } from "./pending-requests.ts";

/** Awaited before a request that stores something: resolves where it may be sent, throws where it may not. */
export type Fence = () => Promise<void>;

/**
 * Told of every request once the headers of its answer are there, or once none came: then `status` is 0. It lies on the
 * path of every rewrite and must neither throw nor take long.
 */
export type RequestObserver = (method: ApiRequest["method"], status: number, seconds: number) => void;

/** The default of `--request-timeout`, in milliseconds. */
export const DEFAULT_REQUEST_TIMEOUT_MS = 70_000;

/** How a {@link Transport} behaves. */
export interface TransportOptions {
  /**
   * Milliseconds for a whole request: credentials, connection, headers and body; of a stream, up to its headers. The API
   * server itself ends a request after 60 s (`--request-timeout`), so a longer silence means that it is gone.
   * @default {@link DEFAULT_REQUEST_TIMEOUT_MS}
   */
  readonly timeoutMs?: number;
  /** @default those of the configuration's user, shared by all connections of this process */
  readonly credentials?: CredentialSource;
  /** @default the clock of this machine */
  readonly clock?: Clock;
  /** @default none */
  readonly observer?: RequestObserver | undefined;
  /** Told of every request while it is under way; a stream counts until its headers are there. @default none */
  readonly pending?: PendingRequests | undefined;
  /** Called whenever a connection was made; then there is one at a time. @default none, and there may be many connections */
  readonly onConnect?: (() => void) | undefined;
  /** What carries requests to a base URL, in place of connections of its own. @default connections by the configuration */
  readonly carrier?: Carrier | undefined;
}

/** Which API server a {@link Transport.another} leads to, and how. */
export interface AnotherOptions extends Pick<TransportOptions, "timeoutMs" | "onConnect"> {
  /** Its base URL. @default the same */
  readonly server?: string;
}
