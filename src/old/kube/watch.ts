import type { Readable } from "node:stream";
import { selectorOfName } from "./field-selector.ts";
import { messageOf } from "../../errors.ts";
import { ApiError } from "./errors.ts";
import { failureKindOf } from "./failure.ts";
import type { KubeObject } from "./client.ts";
import { collectionPath, type Resource } from "./resources.ts";
import type { Transport } from "./transport.ts";
import { WatchAttempts } from "./watch-attempts.ts";
import { type Clock, systemClock } from "../../clock.ts";
import type { Status } from "../../api/meta.ts";

/**
 * What a watch yields. A `GAP` says that changes may have been missed: the resourceVersion to go on from had expired.
 * The caller reads the object again and gives {@link watchObject} the new resourceVersion by starting another.
 */
export type WatchEvent<T> =
  | { readonly type: "ADDED" | "MODIFIED" | "DELETED"; readonly object: T }
  | { readonly type: "BOOKMARK"; readonly resourceVersion: string }
  | { readonly type: "GAP" };

/** Which objects to watch, and from where. */
export interface WatchOptions {
  /** The one object to watch. @default all objects of the resource, over all namespaces */
  readonly name?: string;
  /** The namespace of that object, or of all that are watched. @default none: it is cluster-scoped, or all namespaces */
  readonly namespace?: string;
  /** Only objects whose labels match. @default all */
  readonly labelSelector?: string;
  /** Such as {@link ACCEPT_METADATA}. @default whole objects */
  readonly accept?: string;
  /** Changes after this resourceVersion are delivered; where it is empty, the objects as they are now come first. */
  readonly resourceVersion: string;
  readonly signal: AbortSignal;
  /** @default the clock of this machine */
  readonly clock?: Clock;
  /** Milliseconds until the watch is opened again; twice as long after each attempt that fails. @default 500 */
  readonly retryMs?: number;
  /** Milliseconds without an event or bookmark after which the watch is opened again. @default 90000 */
  readonly maxSilenceMs?: number;
  /**
   * Milliseconds after which the watch ends with a `GAP`, the next time that it would be opened again: so that its reader
   * lists everything from time to time, whatever the API server has kept from it. @default 900000 (15 minutes)
   */
  readonly relistMs?: number;
  /** Seconds after which the API server ends the watch, which is then opened again. @default 290 */
  readonly timeoutSeconds?: number;
  /** Called each time that the API server has begun to answer: it allows the watch, and tells of every change from here on. */
  readonly onOpen?: () => void;
  /**
   * Told of each attempt that failed and is made again: no watch was opened, or one that ended at once, without an event.
   * A watch that is cut later is opened again without a word.
   */
  readonly onFailure?: (error: unknown) => void;
}

/** Seconds after which the API server ends a watch. */
const WATCH_TIMEOUT_SECONDS = 290;
/** The same in milliseconds, where the API server does not: it may be hung. */
const MAX_WATCH_MS = 320_000;
/**
 * API servers send a bookmark about once a minute. Without one, a connection may lead nowhere any more, as behind a load
 * balancer whose API server is gone.
 */
const MAX_SILENCE_MS = 90_000;
const RELIST_MS = 900_000;
/** An event has one object, of which etcd takes 1.5 MiB. */
const MAX_LINE_LENGTH = 16 * 2 ** 20;

/**
 * Watches one object or all of a resource. A dropped or silent connection resumes from the last resourceVersion seen; an
 * expired one (410) ends the watch with a `GAP`, and so does its age. Ends without a further event when the signal is
 * aborted.
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
  const relistAt = clock.monotonic() + (options.relistMs ?? RELIST_MS);
  const attempts = new WatchAttempts(clock, options);
  let resourceVersion = options.resourceVersion;
  while (!options.signal.aborted) {
    if (clock.monotonic() >= relistAt) {
      yield { type: "GAP" };
      return;
    }
    try {
      for await (const event of openWatch<T>(transport, resource, {
        ...options,
        resourceVersion,
        onOpen: attempts.opened,
      })) {
        attempts.heard();
        resourceVersion = resourceVersionOf(event, resourceVersion);
        yield event;
      }
    } catch (error) {
      if (options.signal.aborted) {
        return;
      }
      if (isExpired(error)) {
        yield { type: "GAP" };
        return;
      }
      attempts.failed(error);
    }
    await attempts.pause(options.signal);
  }
}

/** `false` where the watch may be opened again from where it was. @throws the error where it is refused for good */
function isExpired(error: unknown): boolean {
  const kind = failureKindOf(error);
  if (kind !== "expired" && kind !== "transient") {
    throw error;
  }
  return kind === "expired";
}

function resourceVersionOf<T extends KubeObject>(event: WatchEvent<T>, before: string): string {
  if (event.type === "BOOKMARK") {
    return event.resourceVersion;
  }
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
      fieldSelector: options.name === undefined ? undefined : selectorOfName(options.name),
      labelSelector: options.labelSelector,
      resourceVersion: options.resourceVersion,
      timeoutSeconds: options.timeoutSeconds ?? WATCH_TIMEOUT_SECONDS,
    },
    signal: options.signal,
  });
  options.onOpen?.();
  const silence = new SilenceLimit(options.clock ?? systemClock, stream, options.maxSilenceMs ?? MAX_SILENCE_MS);
  try {
    for await (const line of linesOf(stream)) {
      // The caller may take its time with an event: that is no silence of the API server.
      silence.pause();
      yield parseEvent<T>(line, path);
      silence.wait();
    }
  } catch (error) {
    options.signal.throwIfAborted();
    throw error instanceof ApiError
      ? error
      : new ApiError(`WATCH ${path}`, 0, `no answer from ${transport.server}: ${messageOf(error)}`, { cause: error });
  } finally {
    silence.end();
    stream.destroy();
  }
}

/** Ends a stream with an error when nothing comes for too long, or when it is too old. */
class SilenceLimit {
  readonly #clock: Clock;
  readonly #stream: Readable;
  readonly #maxSilenceMs: number;
  readonly #cancelAge: () => void;
  #cancelSilence: (() => void) | undefined;

  constructor(clock: Clock, stream: Readable, maxSilenceMs: number) {
    this.#clock = clock;
    this.#stream = stream;
    this.#maxSilenceMs = maxSilenceMs;
    this.#cancelAge = this.#endIn(MAX_WATCH_MS);
    this.wait();
  }

  /** From here on something has to come. */
  wait(): void {
    this.#cancelSilence = this.#endIn(this.#maxSilenceMs);
  }

  pause(): void {
    this.#cancelSilence?.();
  }

  end(): void {
    this.pause();
    this.#cancelAge();
  }

  #endIn(ms: number): () => void {
    const end = (): void => void this.#stream.destroy(new Error(`the watch was silent or open for ${ms / 1_000} s`));
    return this.#clock.timer(ms, end);
  }
}

/**
 * node:readline would swallow the stream's error, and a cut connection would look like a watch that ended well. Pieces of a
 * line are joined once it is whole: a CRD of a megabyte comes in some sixty.
 */
async function* linesOf(stream: Readable): AsyncGenerator<string, void> {
  let pieces: string[] = [];
  let length = 0;
  stream.setEncoding("utf8");
  for await (const chunk of stream) {
    const [first = "", ...others] = String(chunk).split("\n");
    pieces.push(first);
    length = others.length === 0 ? length + first.length : (others.at(-1)?.length ?? 0);
    if (length > MAX_LINE_LENGTH) {
      throw new Error(`an event continues beyond ${MAX_LINE_LENGTH} characters`);
    }
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
        throw new ApiError(`WATCH ${path}`, 410, "a bookmark came without a resourceVersion");
      }
      return { type: "BOOKMARK", resourceVersion };
    }
    default: {
      const answer = event.object as Status;
      throw new ApiError(`WATCH ${path}`, answer.code ?? 500, answer.message ?? "", { answer });
    }
  }
}
