import type { PartialObjectMetadata, PartialObjectMetadataList } from "../../api/meta.ts";
import { collectionPath, type Resource } from "./resources.ts";
import { TokenTrail } from "./token-trail.ts";

/**
 * Reads a list of metadata to its end, a page at a time.
 * @param page reads the page that a continue token stands for, or the first one
 * @throws {KsvmError} ApiRequestFailed where the list goes in a circle; what `page` throws.
 */
export async function* metadataPages(
  resource: Resource,
  page: (continueToken: string | undefined) => Promise<PartialObjectMetadataList>,
): AsyncGenerator<readonly PartialObjectMetadata[], void> {
  const trail = new TokenTrail(collectionPath(resource));
  let continueToken: string | undefined;
  do {
    const { items, metadata } = await page(continueToken);
    yield items;
    continueToken = trail.next(metadata.continue);
  } while (continueToken !== undefined);
}
