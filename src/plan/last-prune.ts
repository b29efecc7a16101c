import type { CustomResourceDefinition } from "../api/crd.ts";
import { objectIn } from "../api/json-fields.ts";

/** A write of `status.storedVersions` by a client, as against the API server's own additions, which no entry shows. */
export interface StoredVersionsWrite {
  /** The field manager: whatever the client called itself. */
  readonly manager: string;
  /** RFC 3339. */
  readonly time: string;
}

/** The last write of `status.storedVersions`; `undefined` where no client ever wrote it, or the entry is gone. */
export function lastPruneOf({ metadata }: CustomResourceDefinition): StoredVersionsWrite | undefined {
  const writes = (metadata.managedFields ?? []).flatMap(({ fieldsV1, manager = "unknown", subresource, time = "" }) => {
    const fields = objectIn(fieldsV1?.["f:status"]) ?? {};
    return subresource === "status" && Object.hasOwn(fields, "f:storedVersions") ? [{ manager, time }] : [];
  });
  return writes.toSorted((a, b) => a.time.localeCompare(b.time)).at(-1);
}
