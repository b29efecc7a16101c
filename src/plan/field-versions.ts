import type { CallOptions } from "../old/kube/call-options.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { apiVersionOf, collectionPath, type Resource } from "../old/kube/resources.ts";
import { TokenTrail } from "../old/kube/token-trail.ts";

/** Objects whose managedFields name versions that are asked for. Field names are those of `-o json`. */
export interface FieldVersions {
  /** How many objects name one of the versions. */
  readonly objects: number;
  /** The versions that they name, without the group, sorted. */
  readonly versions: readonly string[];
  /** How many objects were looked at: all, or the first ones. */
  readonly lookedAt: number;
  /** Whether there are more. */
  readonly isPartial: boolean;
}

const PAGE_SIZE = 500;
/** What a look at a resource costs at most: 20 pages of metadata. */
const MAX_PAGES = 20;

/**
 * Counts the objects whose managedFields name a version of their group that `isAskedFor`. It lists the metadata of the
 * first 10,000 objects at most, and memory holds one page of short fields.
 * @throws {ApiError}; {KsvmError} ApiRequestFailed where the list goes in a circle.
 */
export async function countFieldVersions(
  client: ApiClient,
  resource: Resource,
  { isAskedFor, signal }: CallOptions & { readonly isAskedFor: (version: string) => boolean },
): Promise<FieldVersions> {
  const prefix = apiVersionOf(resource.group, "");
  const trail = new TokenTrail(collectionPath(resource));
  const versions = new Set<string>();
  let [objects, lookedAt] = [0, 0];
  let continueToken: string | undefined;
  for (let pages = 0; pages < MAX_PAGES; pages++) {
    const page = await client.listPage(resource, { fieldVersions: true, limit: PAGE_SIZE, continueToken, signal });
    for (const { fieldVersions = [] } of page.items) {
      const named = fieldVersions.filter((one) => one.startsWith(prefix)).map((one) => one.slice(prefix.length));
      const asked = named.filter(isAskedFor);
      objects += asked.length > 0 ? 1 : 0;
      for (const version of asked) {
        versions.add(version);
      }
    }
    lookedAt += page.items.length;
    continueToken = trail.next(page.continueToken);
    if (continueToken === undefined) {
      break;
    }
  }
  return { objects, versions: [...versions].sort(), lookedAt, isPartial: continueToken !== undefined };
}

/** `managedFields of 3 of 40 objects name v1alpha1`. */
export function fieldVersionsText({ isPartial, lookedAt, objects, versions }: FieldVersions): string {
  return `managedFields of ${objects} of ${isPartial ? "the first " : ""}${lookedAt} objects name ${versions.join(", ")}`;
}
