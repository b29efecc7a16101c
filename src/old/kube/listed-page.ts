import type { Readable } from "node:stream";
import type { PartialObjectMetadataList } from "../../api/meta.ts";
import { ItemSplitter } from "../json/item-splitter.ts";
import { type ListedObject, type ListedObjectOptions, listedObjectOf, MAX_OBJECT_BYTES } from "./listed-object.ts";

/** What a page of a list says beside its items. */
export interface PageEnd {
  /** The state that the page shows. */
  readonly resourceVersion: string;
  /** Missing where this is the last page. */
  readonly continueToken?: string;
  /** How many objects follow; missing where the API server does not say. */
  readonly remainingItemCount?: number;
  /** The size of the answer. */
  readonly bytes: number;
}

/** One page of a list, of whose objects only the short fields are kept. */
export interface ListedPage extends PageEnd {
  readonly items: readonly ListedObject[];
}

/** Kind, resourceVersion and continue token: some hundred bytes. */
const REST_BYTES = 2 ** 20;

/**
 * Reads a page as it arrives: memory holds one object of it at a time.
 * @throws {Error} where it is not the JSON text of a list of objects, or breaks off.
 */
export async function readListedPage(body: Readable, options: ListedObjectOptions = {}): Promise<ListedPage> {
  const items: ListedObject[] = [];
  const onItem = (text: Buffer): void => void items.push(listedObjectOf(text, options));
  const end = await readItems(body, onItem, { isOfAnyKind: options.status === true });
  return { items, ...end };
}

/**
 * Reads a page as it arrives, and hands out the JSON text of one item at a time: its bytes are good until `onItem` returns.
 * @param options `isOfAnyKind` where the objects of a CRD are listed whole: its `listKind` may be any name. @default one that ends in `List`
 * @throws as {@link readListedPage}; whatever `onItem` throws.
 */
export async function readItems(
  body: Readable,
  onItem: (text: Buffer) => void,
  { isOfAnyKind }: { readonly isOfAnyKind: boolean } = { isOfAnyKind: false },
): Promise<PageEnd> {
  const splitter = new ItemSplitter(onItem, { itemBytes: MAX_OBJECT_BYTES, restBytes: REST_BYTES });
  let bytes = 0;
  for await (const chunk of body as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    splitter.push(chunk);
  }
  const { continue: token = "", remainingItemCount, resourceVersion } = metadataOf(splitter.end(), isOfAnyKind);
  return {
    resourceVersion,
    ...(token === "" ? {} : { continueToken: token }),
    ...(remainingItemCount === undefined ? {} : { remainingItemCount }),
    bytes,
  };
}

/** @param text the list without its items: with what the splitter did not take for them, where they are spelled otherwise */
function metadataOf(text: string, isOfAnyKind: boolean): PartialObjectMetadataList["metadata"] {
  const { kind = "", metadata, items } = (JSON.parse(text) ?? {}) as Partial<PartialObjectMetadataList>;
  const areItemsRead = items === null || (Array.isArray(items) && items.length === 0);
  const isOfKind = isOfAnyKind ? kind !== "" : kind.endsWith("List");
  if (!isOfKind || typeof metadata?.resourceVersion !== "string" || !areItemsRead) {
    throw new TypeError("expected a list with items and a resourceVersion");
  }
  return metadata;
}
