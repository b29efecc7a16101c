import type { Readable } from "node:stream";
import { projectJson, type Projection, prune } from "../json/json-projection.ts";
import { type PageEnd, readItems } from "./listed-page.ts";
import { collectionPath, type Resource } from "./resources.ts";
import type { Transport } from "./transport.ts";

/** How a list is read. */
export interface ListProjectedOptions {
  /** What is kept of each object. */
  readonly projection: Projection;
  /** Objects on one page. */
  readonly limit: number;
  readonly signal?: AbortSignal | undefined;
}

/** All objects of a resource at one resourceVersion, of each what was asked for. */
export interface ProjectedList {
  readonly items: readonly unknown[];
  /** From here on a watch misses nothing. */
  readonly resourceVersion: string;
}

/**
 * Lists all objects of a resource page by page, and keeps of each what a projection names: memory holds one whole object at
 * a time. The list is consistent and current. One whose continue token expires (410) has to be begun again.
 *
 * @throws {ApiError | TransportError}; {TypeError} where a page answers with the continue token that it was asked by.
 */
export async function listProjected(
  transport: Transport,
  resource: Resource,
  { limit, projection, signal }: ListProjectedOptions,
): Promise<ProjectedList> {
  const items: unknown[] = [];
  const path = collectionPath(resource);
  const onItem = (text: Buffer): void => void items.push(projectionOf(text, projection));
  let resourceVersion: string | undefined;
  let page: PageEnd | undefined;
  do {
    const asked = page?.continueToken;
    const request = { method: "GET", path, query: { limit, continue: asked }, signal } as const;
    page = (await transport.read(request, (body) => readItems(body, onItem))).body;
    if (asked !== undefined && page.continueToken === asked) {
      throw new TypeError(`Cannot list ${path}: a page answers with its own continue token`);
    }
    // Of the first page: whatever happened since is in the watch, also where the pages should not be of one state.
    resourceVersion ??= page.resourceVersion;
  } while (page.continueToken !== undefined);
  return { items, resourceVersion };
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
