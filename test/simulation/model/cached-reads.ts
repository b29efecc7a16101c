import { CRD_PREFIX } from "./crd-registry.ts";
import { revisionOf, tooLarge } from "./resource-versions.ts";
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
  const { cache, etcd } = context;
  if (kind.prefix !== CRD_PREFIX) return cache.timeline.get(key, cache.revision);
  if (!context.areCrdsFilled) return etcd.get(key);
  await untilCrdsSeen(context, query);
  return etcd.timeline.get(key, context.crdsSeen);
}

/** @throws {Refusal} where the watch of CRDs does not get to the resourceVersion in time */
export async function untilCrdsSeen(context: ServerContext, query: URLSearchParams): Promise<void> {
  const asked = revisionOf(query.get("resourceVersion") ?? "");
  const isSeen = (): boolean => asked <= context.crdsSeen;
  if (!isSeen()) await context.io.untilSeen(isSeen);
  if (!isSeen()) throw tooLarge(asked, context.crdsSeen);
}
