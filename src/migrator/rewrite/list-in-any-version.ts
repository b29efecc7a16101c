import type { ApiClient, ListPageOptions } from "../../kube/client.ts";
import { isConversionRefusal } from "../../kube/failure.ts";
import type { ListedPage } from "../../kube/listed-page.ts";
import type { Resource } from "../../kube/resources.ts";

/** A resource whose objects are served in one version or more. */
export interface VersionedResource {
  readonly resource: Resource;
  /** Further served versions, for lists that fail in the one of `resource`. */
  readonly otherVersions: readonly string[];
}

/**
 * Lists one page. One object that cannot be converted makes a whole list fail. For the names any served version will do,
 * and the one that the object is stored in needs no conversion; the write then shows which object it is.
 * @throws {ApiError} the first refusal where no version can be listed; whatever else went wrong.
 */
export async function listInAnyVersion(
  client: ApiClient,
  { resource, otherVersions }: VersionedResource,
  options: ListPageOptions,
): Promise<ListedPage> {
  let refusal: unknown;
  for (const version of [resource.version, ...otherVersions]) {
    try {
      return await client.listPage({ ...resource, version }, options);
    } catch (error) {
      if (!isConversionRefusal(error)) {
        throw error;
      }
      refusal ??= error;
    }
  }
  throw refusal;
}
