import type { CrdVersion, CustomResourceDefinition } from "../api/crd.ts";
import { objectIn } from "../api/json-fields.ts";

/** In the entry itself, so that it comes and goes with it: an entry that a vendor brings back is not taken for one of ours. */
const DESCRIPTION =
  "Brought back by ksvm doctor --repair until no object is stored in this version; it removes it then.";
const PRESERVE = "x-kubernetes-preserve-unknown-fields";

/** The entry of `spec.versions` for a version that the CRD lost: no client can use it, and the API server keeps every field. */
export function restoredVersion(name: string): CrdVersion {
  const schema = { openAPIV3Schema: { type: "object", description: DESCRIPTION, [PRESERVE]: true } };
  return { name, served: false, storage: false, schema };
}

/** Whether an entry is one of {@link restoredVersion}, and as it was written. */
export function isRestored({ schema, served, storage }: CrdVersion): boolean {
  const { description, [PRESERVE]: preserves } = objectIn(objectIn(schema)?.["openAPIV3Schema"]) ?? {};
  return !served && !storage && description === DESCRIPTION && preserves === true;
}

/** The names of the versions of a CRD that a repair brought back. */
export function restoredVersionsOf({ spec }: CustomResourceDefinition): readonly string[] {
  return spec.versions.filter(isRestored).map(({ name }) => name);
}
