import { apiVersionOf } from "../../../src/kube/resources.ts";
import type { CrdStorage, ServedKind } from "./served-kinds.ts";
import type { ServerContext } from "./server-context.ts";
import { decode } from "./stored-objects.ts";
import type { EtcdEntry } from "./timeline.ts";

/**
 * Has the conversion webhook of a CRD asked for what the watch caches of its versions need, so that a list is answered
 * later on although the webhook is down. What cannot be converted is asked for again when it is listed.
 */
export function convertAhead(context: ServerContext, crd: CrdStorage, entries: readonly EtcdEntry[]): void {
  const { conversionUrl, kinds } = crd.facts;
  if (conversionUrl === undefined) return;
  for (const entry of entries) {
    for (const [version, ofVersion] of kinds) {
      const isOther = entry.object.apiVersion !== apiVersionOf(crd.facts.group, version);
      if (isOther && !entry.isDeleted) ahead(context, { ...ofVersion, crd }, entry);
    }
  }
}

function ahead(context: ServerContext, kind: ServedKind, entry: EtcdEntry): void {
  decode(context, kind, entry, true).catch(() => undefined);
}
