import type { CustomResourceDefinition } from "../../api/crd.ts";
import type { PartialObjectMetadataList } from "../../api/meta.ts";
import { compareResourceVersions } from "../../api/resource-version.ts";
import { failureKindOf } from "../kube/failure.ts";
import { metadataPages } from "../kube/metadata-pages.ts";
import { CRDS } from "../kube/resources.ts";
import { unlessForbidden } from "../kube/unless-forbidden.ts";
import type { CallContext } from "../retry/call-context.ts";
import type { KnownCrd } from "./converge.ts";
import { storageChangeOf } from "./settle.ts";
import type { SettledChanges } from "./settled-changes.ts";

const PAGE_SIZE = 100;
/** Of a user who may not list them, and where the list cannot go on. */
const NO_PAGE: PartialObjectMetadataList = { apiVersion: "", kind: "", metadata: { resourceVersion: "" }, items: [] };

/** What all API servers have to know of CRDs before a run without a freeze waits for late writes. */
export interface CrdsToFollow {
  /** The CRD of the run, and up to where their watches of CRDs have to be. */
  readonly crd: KnownCrd | undefined;
  /**
   * From when on late writes of it are to be waited for, on the monotonic clock, in milliseconds; `undefined` where that is now, and negative infinity where
   * they were.
   */
  readonly from: number | undefined;
  /** To be called where the wait came to its end. @param now on the monotonic clock */
  readonly settled: (now: number) => void;
}

/**
 * A stamp tells how long ago a CRD changed, and not whether an API server was behind until a moment ago: while another resource was migrated, or
 * while it held the question whether it has followed. So a stamp is not enough here: one wait of this process has to have begun once all API
 * servers had followed the CRD. Where none has, they are to follow all CRDs that there are, so that the wait counts for the runs on those, too. Only their
 * watches of CRDs are asked there: discovery of the others, and what stores their objects, may follow later. So the run on another CRD waits as well, from
 * the end of that wait on: as a rule that is over by then.
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
    return { crd, from: Number.NEGATIVE_INFINITY, settled: () => undefined };
  }
  const { metadata } = crd;
  const own = keyOf(crd);
  const from = settled?.from(own, apiServers);
  if (from !== undefined) {
    return { crd: metadata, from, settled: () => settled?.note(own, apiServers) };
  }
  let notOlderThan = metadata.resourceVersion;
  const keys: string[] = [];
  const page = async (continueToken: string | undefined): Promise<PartialObjectMetadataList> => {
    const list = () => client.listMetadata(CRDS, { limit: PAGE_SIZE, continueToken, signal });
    try {
      return (await retrier.run(() => unlessForbidden(list), signal)) ?? NO_PAGE;
    } catch (error) {
      // The CRDs that were not listed are waited for by themselves.
      if (failureKindOf(error) === "expired") return NO_PAGE;
      throw error;
    }
  };
  for await (const items of metadataPages(CRDS, page)) {
    for (const item of items) {
      const { resourceVersion } = item.metadata;
      const order = compareResourceVersions(resourceVersion, notOlderThan);
      if (order !== undefined) {
        notOlderThan = order > 0 ? resourceVersion : notOlderThan;
        keys.push(keyOf(item));
      }
    }
  }
  return {
    crd: { ...metadata, notOlderThan },
    from: undefined,
    settled: (now) => {
      for (const key of keys) {
        settled?.note(key, apiServers, now);
      }
      settled?.note(own, apiServers);
    },
  };
}

/** Of a namespace of its own: a run with a freeze has asked for more, and notes a wait also where a stamp had it wait for nothing. */
function keyOf(crd: Pick<CustomResourceDefinition, "metadata">): string {
  return `followed ${storageChangeOf(crd).key}`;
}
