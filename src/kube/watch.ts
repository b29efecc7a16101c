import type { Readable } from "node:stream";
import { ApiError, TransportError } from "./errors.ts";
import { failureKindOf } from "./failure.ts";
import type { KubeObject } from "./client.ts";
import { collectionPath, type Resource } from "./resources.ts";
import type { Transport } from "./transport.ts";
import { type Clock, systemClock } from "../clock.ts";
import type { Status } from "../api/meta.ts";

/**
 * What a watch yields. A `GAP` says that changes may have been missed: the resourceVersion to go on from had expired.
 * Whoever watches reads the object again and gives {@link watchObject} the new resourceVersion by starting another.
 */
export type WatchEvent<T> =
  | { readonly type: "ADDED" | "MODIFIED" | "DELETED"; readonly object: T }
  | { readonly type: "BOOKMARK"; readonly resourceVersion: string }
  | { readonly type: "GAP" };

/** Which objects to watch, and from where. */
export interface WatchOptions {
  /** The one object to watch. @default all objects of the resource, over all namespaces */
  readonly name?: string;
  /** The namespace of that object. @default none: it is cluster-scoped */
  readonly namespace?: string;
  /** Such as {@link ACCEPT_METADATA}. @default whole objects */
  readonly accept?: string;
  /** Changes after this resourceVersion are delivered; where it is empty, the objects as they are now come first. */
  readonly resourceVersion: string;
  readonly signal: AbortSignal;
  /** @default the clock of this machine */
  readonly clock?: Clock;
  /** Milliseconds between attempts to open the watch again. @default 500 */
  readonly retryMs?: number;
}

/** Seconds after which the API server ends a watch, so that a connection that died silently is noticed. */
const WATCH_TIMEOUT_SECONDS = 290;

/**
 * Watches one object or all of a resource. A dropped connection resumes from the last resourceVersion seen; an
 * expired one (410) ends the watch with a `GAP`. Ends without a further event when the signal is aborted.
 *
 * https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
 * @throws {ApiError} where the watch is refused for good (403, 404).
 */
export async function* watchObject<T extends KubeObject>(
  transport: Transport,
  resource: Resource,
  options: WatchOptions,
): AsyncGenerator<WatchEvent<T>, void> {
  const clock = options.clock ?? systemClock;
  let resourceVersion = options.resourceVersion;
  while (!options.signal.aborted) {
    try {
      for await (const event of openWatch<T>(transport, resource, { ...options, resourceVersion })) {
        resourceVersion = event.type === "BOOKMARK" ? event.resourceVersion : resourceVersionOf(event, resourceVersion);
        yield event;
      }
    } catch (error) {
      if (options.signal.aborted) {
        return;
      }
      const kind = failureKindOf(error);
      if (kind === "expired") {
        yield { type: "GAP" };
        return;
      }
      if (kind !== "transient") {
        throw error;
      }
    }
    await clock.sleep(options.retryMs ?? 500, options.signal).catch(() => undefined);
  }
}

function resourceVersionOf<T extends KubeObject>(event: WatchEvent<T>, before: string): string {
  return "object" in event ? (event.object.metadata.resourceVersion ?? before) : before;
}

async function* openWatch<T extends KubeObject>(
  transport: Transport,
  resource: Resource,
  options: WatchOptions,
): AsyncGenerator<WatchEvent<T>, void> {
  const path = collectionPath(resource, options.namespace);
  const stream = await transport.stream({
    method: "GET",
    path,
    ...(options.accept === undefined ? {} : { accept: options.accept }),
    query: {
      watch: true,
      allowWatchBookmarks: true,
      fieldSelector: options.name === undefined ? undefined : `metadata.name=${options.name}`,
      resourceVersion: options.resourceVersion,
      timeoutSeconds: WATCH_TIMEOUT_SECONDS,
    },
    signal: options.signal,
  });
  try {
    for await (const line of linesOf(stream)) {
      yield parseEvent<T>(line, path);
    }
  } catch (error) {
    options.signal.throwIfAborted();
    throw error instanceof ApiError ? error : new TransportError(`WATCH ${path}`, transport.server, error);
  } finally {
    stream.destroy();
  }
}

/**
 * node:readline would swallow the stream's error, and a cut connection would look like a watch that ended well. Pieces of a
 * line are joined once it is whole: a CRD of a megabyte comes in some sixty.
 */
async function* linesOf(stream: Readable): AsyncGenerator<string, void> {
  let pieces: string[] = [];
  stream.setEncoding("utf8");
  for await (const chunk of stream) {
    const [first = "", ...others] = String(chunk).split("\n");
    pieces.push(first);
    for (const next of others) {
      const line = pieces.join("");
      pieces = [next];
      if (line !== "") {
        yield line;
      }
    }
  }
}

function parseEvent<T extends KubeObject>(line: string, path: string): WatchEvent<T> {
  const event = JSON.parse(line) as { type: string; object: T | Status };
  switch (event.type) {
    case "ADDED":
    case "MODIFIED":
    case "DELETED":
      return { type: event.type, object: event.object as T };
    case "BOOKMARK": {
      const { resourceVersion } = (event.object as T).metadata;
      if (resourceVersion === undefined) {
        // Going on from none would be going on from now, past what was missed: as if it had expired.
        throw new ApiError(`WATCH ${path}`, 410, { text: "a bookmark came without a resourceVersion" });
      }
      return { type: "BOOKMARK", resourceVersion };
    }
    default: {
      const answer = event.object as Status;
      throw new ApiError(`WATCH ${path}`, answer.code ?? 500, { answer });
    }
  }
}
