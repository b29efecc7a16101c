import type { Logger } from "pino";
import type { Clock } from "../clock.ts";
import { isUnserved } from "../old/kube/absent.ts";
import type { ApiClient, KubeObject } from "../old/kube/client.ts";
import { isForbidden } from "../old/kube/failure.ts";
import { FollowPace } from "../old/retry/follow-pace.ts";
import { ACCEPT_METADATA, type Resource } from "../old/kube/resources.ts";
import { watchObject } from "../old/kube/watch.ts";

/** How changes of a resource are followed. */
export interface FollowOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly resource: Resource;
  /** What the log calls it, in the plural. */
  readonly what: string;
  /** What it costs that this user may not list or watch them, for the log. */
  readonly cost: string;
  /** The same where it may not even list them. @default the cost */
  readonly costOfList?: string;
  /** Called when the watch begins, each time: what happened earlier was not seen. */
  readonly onStart: () => void;
  /**
   * Called where nothing can be followed now: the resource is not served, this user may not list or watch it, or the API
   * server answers to lists and not to watches.
   */
  readonly onNothing: () => void;
  /** Told of each object that came, changed, or went. */
  readonly onChange: (name: string) => void;
  readonly signal: AbortSignal;
}

/** Follows the objects of a resource by their metadata alone, until the signal is aborted. What fails is tried again. */
export async function followNames(options: FollowOptions): Promise<void> {
  const { onNothing, signal } = options;
  const pace = new FollowPace(options);
  while (!signal.aborted) {
    try {
      await pace.turn(signal);
      await listAndWatch(options, pace);
    } catch (error) {
      if (signal.aborted) {
        return;
      }
      pace.failed(error);
      if (isForbidden(error)) {
        onNothing();
      }
    }
  }
}

async function listAndWatch(options: FollowOptions, pace: FollowPace): Promise<void> {
  const { client, clock, resource, signal } = options;
  let resourceVersion: string;
  try {
    ({ resourceVersion } = (await client.listMetadata(resource, { limit: 1, signal })).metadata);
  } catch (error) {
    if (await isUnserved(client.transport, resource, error, { signal })) {
      pace.unserved();
      options.onNothing();
      return;
    }
    throw error;
  }
  let isOpen = false;
  const onOpen = (): void => {
    pace.opened();
    if (!isOpen) {
      isOpen = true;
      options.onStart();
    }
  };
  const onFailure = (error: unknown): void => {
    pace.failed(error);
    // Looks at the whole of discovery are sound without it, and must not wait for it.
    options.onNothing();
  };
  const watch = { resourceVersion, accept: ACCEPT_METADATA, signal, clock, onOpen, onFailure };
  for await (const event of watchObject<KubeObject>(client.transport, resource, watch)) {
    if (event.type !== "GAP") {
      pace.heard();
    }
    if ("object" in event && event.object.metadata.name !== undefined) {
      options.onChange(event.object.metadata.name);
    }
  }
}
