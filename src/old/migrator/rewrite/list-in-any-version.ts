import { isUnserved } from "../../kube/absent.ts";
import type { ApiClient, ListPageOptions } from "../../kube/client.ts";
import { isConversionRefusal } from "../../kube/failure.ts";
import type { ListedPage } from "../../kube/listed-page.ts";
import type { Resource } from "../../kube/resources.ts";
import { throwIfUnserved } from "./unserved-version.ts";

/** A resource whose objects are served in one version or more. */
export interface VersionedResource {
  readonly resource: Resource;
  /** Further served versions, for lists that fail in the one of `resource`. */
  readonly otherVersions: readonly string[];
}

/**
 * Lists one page. One object that cannot be converted makes a whole list fail. For the names any served version will do,
 * and the one that the object is stored in needs no conversion; the write then shows which object it is.
 * @throws {ApiError} the first refusal where no version can be listed; {KsvmError} VersionNotServed where the one of `resource` is no
 *   longer served, as the API server's lists confirm; {DoubtfulAnswer} for a 404 that they contradict; whatever else went wrong.
 */
export async function listInAnyVersion(
  client: ApiClient,
  { resource, otherVersions }: VersionedResource,
  options: ListPageOptions,
): Promise<ListedPage> {
  const { signal } = options;
  let refusal: unknown;
  for (const version of [resource.version, ...otherVersions]) {
    const requested = { ...resource, version };
    try {
      return await client.listPage(requested, options);
    } catch (error) {
      // Another version that is not served any more is none to list in.
      const isOther = refusal !== undefined;
      const isPassedOver =
        isConversionRefusal(error) || (isOther && (await isUnserved(client.transport, requested, error, { signal })));
      if (!isPassedOver) {
        await throwIfUnserved(client.transport, requested, error, { signal });
        throw error;
      }
      refusal ??= error;
    }
  }
  throw refusal;
}
