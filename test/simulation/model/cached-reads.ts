import { CRD_PREFIX } from "./crd-registry.ts";
import { revisionOf, tooLarge } from "./lists.ts";
import type { ServedKind } from "./served-kinds.ts";
import type { ServerContext } from "./server-context.ts";
import type { EtcdEntry } from "./timeline.ts";

/**
 * What a read of one object with a resourceVersion finds: the state that a watch cache has. Each resource has one of its own, and that of
 * CRDs alone is waited for: nothing asks so for others.
 * @throws {Refusal} where it does not get there in time
 */
export async function cachedEntry(
  context: ServerContext,
  query: URLSearchParams,
  { kind, key }: { readonly kind: ServedKind; readonly key: string },
): Promise<EtcdEntry | undefined> {
  const { cache, etcd, io } = context;
  if (kind.prefix !== CRD_PREFIX) return cache.timeline.get(key, cache.revision);
  const asked = revisionOf(query.get("resourceVersion") ?? "");
  const isSeen = (): boolean => asked <= context.crdsSeen;
  if (!isSeen()) await io.untilSeen(isSeen);
  if (!isSeen()) throw tooLarge(asked, context.crdsSeen);
  return etcd.timeline.get(key, context.crdsSeen);
}
