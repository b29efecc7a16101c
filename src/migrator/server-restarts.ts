import type { ApiClient } from "../kube/client.ts";
import { failureKindOf } from "../kube/failure.ts";
import type { ApiServers } from "./api-servers.ts";
import { PinnedTransport } from "./pinned-transport.ts";
import type { RunContext } from "./run-context.ts";
import { readServerInstance } from "./server-instance.ts";

/** The processes behind a set of API servers: by address, or by process alone where one address leads to several. */
export type Instances = ReadonlyMap<string, string>;

/**
 * Whether a process of `before` was replaced by another one, or cannot be told any more. What could not be told before
 * shows nothing.
 */
export function isAnyReplaced(before: Instances, after: Instances): boolean {
  return [...before].some(([server, instance]) => after.get(server) !== instance);
}

/** The metrics of an API server with thousands of resources may take so long, over a slow network, in milliseconds. */
const READ_TIMEOUT_MS = 60_000;
const TRIES = 3;
const PAUSE_MS = 2_000;

/**
 * Counts the restarts of API servers over all attempts of a run. Between two looks an API server may have run with another
 * version or another EncryptionConfiguration: what it wrote then is beyond the watermark of the run. Its identity Lease may
 * not show that. The time at which its process started does, where this user may get /metrics.
 */
export class ServerRestarts {
  #known: Instances | undefined;
  #count = 0;

  /**
   * Looks at every API server once more.
   * @returns how many looks of this run found that one restarted since the look before
   * @throws the signal's reason where it was aborted.
   */
  async look(context: RunContext, apiServers: ApiServers): Promise<number> {
    const instances = await instancesOf(context, apiServers);
    if (this.#known !== undefined && isAnyReplaced(this.#known, instances)) {
      this.#count++;
    }
    this.#known = instances;
    return this.#count;
  }
}

async function instancesOf(context: RunContext, { clients = [] }: ApiServers): Promise<Instances> {
  const found = await Promise.all(
    clients.map(async (client): Promise<readonly [string, string | undefined]> => {
      const { transport } = client;
      // Behind one address they are told apart by nothing else.
      return transport instanceof PinnedTransport
        ? [transport.instance, transport.instance]
        : [transport.server, await instanceOf(context, client)];
    }),
  );
  return new Map(found.filter((entry): entry is readonly [string, string] => entry[1] !== undefined));
}

/** `undefined` where it cannot be told. That an API server does not answer at all is for others to notice. */
async function instanceOf({ clock, signal }: RunContext, { transport }: ApiClient): Promise<string | undefined> {
  for (let tries = 1; tries <= TRIES; tries++) {
    try {
      return await readServerInstance(transport, AbortSignal.any([signal, AbortSignal.timeout(READ_TIMEOUT_MS)]));
    } catch (error) {
      signal.throwIfAborted();
      if (failureKindOf(error) !== "transient" && !isTimeout(error)) {
        return undefined;
      }
    }
    await clock.sleep(PAUSE_MS, signal);
  }
  return undefined;
}

function isTimeout(error: unknown): boolean {
  return error instanceof DOMException && error.name === "TimeoutError";
}
