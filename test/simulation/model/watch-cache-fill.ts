import { apiVersionOf } from "../../../src/kube/resources.ts";
import { Refusal } from "./answers.ts";
import { CRD_PREFIX } from "./crd-registry.ts";
import type { CrdStorage, ServedKind } from "./served-kinds.ts";
import type { ServerContext } from "./server-context.ts";
import { decode, decodeNow } from "./stored-objects.ts";
import type { EtcdEntry } from "./timeline.ts";

/**
 * Each served version of a custom resource has a watch cache, and a new handler begins another one. It is filled with all objects
 * or not at all: one that cannot be converted keeps it empty. Lists and watches that need it get 429 until then.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/storage/cacher/cacher.go
 * @throws {Refusal} 429
 */
export async function assertFilled(context: ServerContext, kind: ServedKind): Promise<void> {
  const { crd, version } = kind;
  if (kind.prefix === CRD_PREFIX && !context.areCrdsFilled) throw reinitializing("");
  if (crd === undefined) return;
  if (context.initializing.has(crd.facts.name)) throw reinitializing("");
  if (crd.filled.has(version)) return;
  try {
    for (const entry of context.etcd.range(kind.prefix)) {
      if (decodeNow(context, kind, entry) === undefined) await decode(context, kind, entry, true);
    }
    crd.filled.add(version);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    throw reinitializing(`: failed to list ${kind.apiVersion}, Kind=${kind.kind}: ${error.message}`);
  }
}

function reinitializing(why: string): Refusal {
  const message = `storage is (re)initializing${why}`;
  return new Refusal({ code: 429, reason: "TooManyRequests", details: { retryAfterSeconds: 1 }, message });
}

/** Has the watch caches of a new handler filled, so far as the conversion webhook answers. */
export function fillAhead(context: ServerContext, crd: CrdStorage): void {
  if (crd.facts.conversionUrl === undefined) return;
  for (const kind of crd.facts.kinds.values()) assertFilled(context, { ...kind, crd }).catch(() => undefined);
}

/** Has the webhook asked for what the watch caches need of a new entry. What it refuses is asked for again by a list. */
export function convertAhead(context: ServerContext, crd: CrdStorage, entry: EtcdEntry): void {
  if (entry.isDeleted) return;
  for (const [version, kind] of crd.facts.kinds) {
    const isOther = entry.object.apiVersion !== apiVersionOf(crd.facts.group, version);
    if (isOther) decode(context, { ...kind, crd }, entry, true).catch(() => undefined);
  }
}
