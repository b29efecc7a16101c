import type { ConnectionConfig } from "./connect/cluster-config.ts";
import { systemClock } from "../../clock.ts";
import { ApiClient } from "./client.ts";
import { assertSupportedServer } from "./discovery.ts";
import { failureKindOf } from "./failure.ts";
import { Transport } from "./transport.ts";
import type { TransportOptions } from "./transport-options.ts";

/** A connection to a cluster that this program can work with. */
export interface Connection {
  readonly client: ApiClient;
  close(): Promise<void>;
}

/** How long the first answer may take, in milliseconds. An API server that is there answers /version at once. */
const FIRST_ANSWER_TIMEOUT_MS = 15_000;
const FIRST_ANSWER_TRIES = 5;
const FIRST_ANSWER_PAUSE_MS = 100;
const QUICK_MS = 2_000;

/**
 * Connects, and makes sure that the API server answers and is not too old.
 * @throws {KsvmError} KubeconfigInvalid, ServerUnreachable, Unauthorized, Forbidden or ServerUnsupported.
 */
export async function connectTo(
  config: ConnectionConfig,
  signal: AbortSignal,
  options: Pick<TransportOptions, "observer" | "timeoutMs"> = {},
): Promise<Connection> {
  const transport = new Transport(config, options);
  try {
    await transport.authenticate(signal);
    await firstAnswer(
      transport,
      Math.min(FIRST_ANSWER_TIMEOUT_MS, options.timeoutMs ?? Number.POSITIVE_INFINITY),
      signal,
    );
  } catch (error) {
    await transport.close();
    throw error;
  }
  return { client: new ApiClient(transport), close: () => transport.close() };
}

/**
 * Tries again after a quick failure: a single broken connection does not mean that the API server is down, and a 404 may be
 * the word of a proxy that has no API server behind it at that moment.
 */
async function firstAnswer(transport: Transport, timeoutMs: number, signal: AbortSignal): Promise<void> {
  for (let tries = 1; ; tries++) {
    const startedAt = systemClock.monotonic();
    try {
      await assertSupportedServer(transport, { signal, timeoutMs });
      return;
    } catch (error) {
      const wasQuick = systemClock.monotonic() - startedAt < QUICK_MS;
      const kind = failureKindOf(error);
      const mayPass = kind === "transient" || kind === "unserved";
      if (!mayPass || !wasQuick || tries === FIRST_ANSWER_TRIES) {
        throw error;
      }
      await systemClock.sleep(FIRST_ANSWER_PAUSE_MS * tries, signal);
    }
  }
}
