import type { Clock } from "../clock.ts";
import { isUnserved } from "../kube/absent.ts";
import type { ApiClient, KubeObject } from "../kube/client.ts";
import { ACCEPT_METADATA, type Resource } from "../kube/resources.ts";
import { watchObject } from "../kube/watch.ts";

/** How changes of a resource are followed. */
export interface FollowOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly resource: Resource;
  /** Called before the watch begins, each time: what happened earlier was not seen. */
  readonly onStart: () => void;
  /** Told of each object that came, changed, or went. */
  readonly onChange: (name: string) => void;
  readonly signal: AbortSignal;
}

/**
 * Follows the objects of a resource by their metadata alone, until the signal is aborted or changes were missed. Ends at
 * once where the resource is not served.
 * @throws {ApiError | TransportError} where it cannot be listed or watched.
 */
export async function followNames(options: FollowOptions): Promise<void> {
  const { client, clock, resource, signal } = options;
  let resourceVersion: string;
  try {
    ({ resourceVersion } = (await client.listMetadata(resource, { limit: 1, signal })).metadata);
  } catch (error) {
    if (await isUnserved(client.transport, resource, error, { signal })) {
      return;
    }
    throw error;
  }
  options.onStart();
  const watch = { resourceVersion, accept: ACCEPT_METADATA, signal, clock };
  for await (const event of watchObject<KubeObject>(client.transport, resource, watch)) {
    if ("object" in event && event.object.metadata.name !== undefined) {
      options.onChange(event.object.metadata.name);
    }
  }
}

/** Calls `follow` again and again, with a pause after each time, until the signal is aborted. */
export async function keepFollowing(
  follow: () => Promise<void>,
  options: {
    readonly clock: Clock;
    /** Milliseconds. */
    readonly pauseMs: number;
    readonly onError: (error: unknown) => void;
    readonly signal: AbortSignal;
  },
): Promise<void> {
  const { clock, onError, pauseMs, signal } = options;
  while (!signal.aborted) {
    try {
      await follow();
    } catch (error) {
      if (!signal.aborted) {
        onError(error);
      }
    }
    await clock.sleep(pauseMs, signal).catch(() => undefined);
  }
}
