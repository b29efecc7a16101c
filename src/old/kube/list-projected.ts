import type { Readable } from "node:stream";
import { projectJson, type Projection, prune } from "../json/json-projection.ts";
import { readItems } from "./listed-page.ts";
import { collectionPath, type Resource } from "./resources.ts";
import { TokenTrail } from "./token-trail.ts";
import type { Transport } from "./transport.ts";

/** How a list is read. */
export interface ListProjectedOptions {
  /** What is kept of each object. */
  readonly projection: Projection;
  /** Objects on one page. */
  readonly limit: number;
  readonly signal?: AbortSignal | undefined;
}

/** Objects of a resource at one resourceVersion, of each what was asked for. */
export interface ProjectedList {
  readonly items: readonly unknown[];
  /** From here on a watch misses nothing. */
  readonly resourceVersion: string;
}

/**
 * Lists all objects of a resource, and keeps of each what a projection names.
 * @throws as {@link projectedPages}.
 */
export async function listProjected(
  transport: Transport,
  resource: Resource,
  options: ListProjectedOptions,
): Promise<ProjectedList> {
  const items: unknown[] = [];
  let resourceVersion = "";
  for await (const page of projectedPages(transport, resource, options)) {
    items.push(...page.items);
    // Of the first page: whatever happened since is in the watch, also where the pages should not be of one state.
    resourceVersion ||= page.resourceVersion;
  }
  return { items, resourceVersion };
}

/**
 * Lists all objects of a resource page by page, and keeps of each what a projection names: memory holds one whole object at
 * a time. The list is consistent and current. One whose continue token expires (410) has to be begun again.
 *
 * @throws {ApiError | TransportError}; {KsvmError} ApiRequestFailed where the list goes in a circle.
 */
export async function* projectedPages(
  transport: Transport,
  resource: Resource,
  { limit, projection, signal }: ListProjectedOptions,
): AsyncGenerator<ProjectedList> {
  const path = collectionPath(resource);
  const trail = new TokenTrail(path);
  let continueToken: string | undefined;
  do {
    const items: unknown[] = [];
    const onItem = (text: Buffer): void => void items.push(projectionOf(text, projection));
    const request = { method: "GET", path, query: { limit, continue: continueToken }, signal } as const;
    const page = (await transport.read(request, (body) => readItems(body, onItem))).body;
    continueToken = trail.next(page.continueToken);
    yield { items, resourceVersion: page.resourceVersion };
  } while (continueToken !== undefined);
}

/** Reads an object, and builds only what the projection names. @throws {SyntaxError} where it is not JSON. */
export async function readProjected(body: Readable, projection: Projection): Promise<unknown> {
  const chunks: Buffer[] = [];
  for await (const chunk of body as AsyncIterable<Buffer>) {
    chunks.push(chunk);
  }
  return projectionOf(Buffer.concat(chunks), projection);
}

/** What a projection keeps of the JSON text of an object. */
function projectionOf(text: Buffer, projection: Projection): unknown {
  const projected = projectJson(text, projection);
  return projected === undefined ? prune(JSON.parse(text.toString("utf8")), projection) : projected.value;
}
