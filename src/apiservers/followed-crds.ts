import type { CustomResourceDefinition } from "../api/crd.ts";
import type { PartialObjectMetadataList } from "../api/meta.ts";
import { compareResourceVersions } from "../api/resource-version.ts";
import { metadataPages } from "../kube/metadata-pages.ts";
import { CRDS } from "../kube/resources.ts";
import { unlessForbidden } from "../kube/unless-forbidden.ts";
import type { CallContext } from "../retry/call-context.ts";
import type { KnownCrd } from "./converge.ts";
import { storageChangeOf } from "./settle.ts";
import type { SettledChanges } from "./settled-changes.ts";

const PAGE_SIZE = 500;
/** Of a user who may not list them. */
const NO_PAGE: PartialObjectMetadataList = { apiVersion: "", kind: "", metadata: { resourceVersion: "" }, items: [] };

/** What all API servers have to know of CRDs before a run without a freeze waits for late writes. */
export interface CrdsToFollow {
  /** The CRD of the run, and up to where their watches of CRDs have to be. */
  readonly crd: KnownCrd | undefined;
  /** Whether this process has yet to make that wait for the CRD as it is. */
  readonly isDue: boolean;
  /** To be called where the wait came to its end. */
  readonly settled: () => void;
}

/**
 * A stamp tells how long ago a CRD changed, and not whether an API server was behind until a moment ago: while another resource was migrated, or
 * while it held the question whether it has followed. So a stamp is not enough here: one wait of this process has to have begun once all API
 * servers had followed the CRD. Where none has, they are to follow all CRDs that there are: the wait then counts for the runs on those, too.
 * A run with a freeze needs none of that, since the freeze is a change of the CRD, which they follow while they are asked.
 * @param crd `undefined` where the resource has none: then there is nothing to follow
 * @param apiServers which ones there are, as `apiServersAt()` makes it
 * @throws {ApiError | TransportError | KsvmError} where the CRDs cannot be listed. A user who may not do so has this CRD alone followed.
 */
export async function crdsToFollow(
  { client, retrier, settled, signal }: CallContext & { readonly settled?: SettledChanges | undefined },
  crd: CustomResourceDefinition | undefined,
  apiServers: string,
): Promise<CrdsToFollow> {
  if (crd === undefined) {
    return { crd, isDue: false, settled: () => undefined };
  }
  const { metadata } = crd;
  if (settled?.has(storageChangeOf(crd).key, apiServers) === true) {
    return { crd: metadata, isDue: false, settled: () => undefined };
  }
  let notOlderThan = metadata.resourceVersion;
  const keys = [storageChangeOf(crd).key];
  const page = async (continueToken: string | undefined): Promise<PartialObjectMetadataList> => {
    const list = () => client.listMetadata(CRDS, { limit: PAGE_SIZE, continueToken, signal });
    return (await retrier.run(() => unlessForbidden(list), signal)) ?? NO_PAGE;
  };
  for await (const items of metadataPages(CRDS, page)) {
    for (const item of items) {
      const { resourceVersion } = item.metadata;
      const order = compareResourceVersions(resourceVersion, notOlderThan);
      if (order !== undefined) {
        notOlderThan = order > 0 ? resourceVersion : notOlderThan;
        keys.push(storageChangeOf(item).key);
      }
    }
  }
  return {
    crd: { ...metadata, notOlderThan },
    isDue: true,
    settled: () => keys.forEach((key) => settled?.note(key, apiServers)),
  };
}
