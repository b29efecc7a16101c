import type { CallOptions, Client } from "./client.ts";
import { ApiError, mayPass, type Status, whose } from "./errors.ts";
import type { KubeObject } from "./objects.ts";
import { pauseAfter } from "./retry.ts";

/**
 * What a watch tells. A `GAP` says that changes may have been missed: whoever watches lists, and watches from there.
 */
export type WatchEvent<T> =
  | { readonly type: "ADDED" | "MODIFIED" | "DELETED"; readonly object: T }
  | { readonly type: "BOOKMARK"; readonly resourceVersion: string }
  | { readonly type: "GAP" };

/** The API server ends a watch after so many seconds, and it is opened again. */
const WATCH_S = 290;
/** A bookmark comes about once a minute. A connection that is silent for longer may lead nowhere any more. */
const MAX_SILENCE_MS = 90_000;
/** One object, of which etcd takes 1.5 MiB, in JSON. */
const MAX_LINE_BYTES = 16 * 2 ** 20;

/**
 * Watches a collection for changes after a resourceVersion. A watch that ends or breaks is opened again where it was; one whose resourceVersion has expired
 * (410) ends with a `GAP`. Ends without an event once the signal is aborted.
 *
 * https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
 * @throws {ApiError} where the watch is refused for good (403, 404).
 */
export async function* watch<T extends KubeObject>(
  client: Client,
  path: string,
  { accept, query, signal, ...options }: CallOptions & { readonly resourceVersion: string },
): AsyncGenerator<WatchEvent<T>, void> {
  let { resourceVersion } = options;
  for (let failures = 0; !signal.aborted; ) {
    const abort = new AbortController();
    const tooLong = (): void => abort.abort(new ApiError(`watch ${path}`, 0, "nothing came for too long"));
    let cancel = client.clock.timer(MAX_SILENCE_MS, tooLong);
    let failure: unknown;
    try {
      const asked = { ...query, watch: true, allowWatchBookmarks: true, resourceVersion, timeoutSeconds: WATCH_S };
      const limits = { maxLineBytes: MAX_LINE_BYTES, signal: AbortSignal.any([signal, abort.signal]) };
      const lines = await client.lines(path, { ...(accept === undefined ? {} : { accept }), query: asked, ...limits });
      for await (const line of lines) {
        cancel();
        cancel = client.clock.timer(MAX_SILENCE_MS, tooLong);
        const event = parseEvent(line, path) as Exclude<WatchEvent<T>, { type: "GAP" }>;
        resourceVersion = event.type === "BOOKMARK" ? event.resourceVersion : event.object.metadata.resourceVersion;
        failures = 0;
        yield event;
      }
    } catch (error) {
      failure = error;
    } finally {
      cancel();
      abort.abort();
    }
    if (signal.aborted) return;
    if (whose(failure) === "expired") {
      yield { type: "GAP" };
      return;
    }
    // A watch that was silent for too long is opened again, like one that broke.
    if (failure instanceof ApiError && !mayPass(failure)) throw failure;
    await client.clock.sleep(pauseAfter(failure, failures++, client.random()), signal).catch(() => undefined);
  }
}

function parseEvent(line: string, path: string): Exclude<WatchEvent<KubeObject>, { type: "GAP" }> {
  const { object, type } = JSON.parse(line) as { type: string; object: KubeObject & Status };
  switch (type) {
    case "ADDED":
    case "MODIFIED":
    case "DELETED":
      return { type, object };
    case "BOOKMARK":
      return { type, resourceVersion: object.metadata.resourceVersion };
    default: {
      const { code = 500, message = "" } = object;
      throw new ApiError(`watch ${path}`, code, message, { answer: object });
    }
  }
}
