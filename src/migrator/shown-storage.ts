import type { EncryptionFound } from "../apiservers/encryption-evidence.ts";
import type { MigrationResult } from "./result.ts";

/**
 * What the last look at the API servers says of the objects of a resource.
 * @param found what it found. @default nothing was looked at
 * @param crdName the CRD of a custom resource: the encoding is that of custom resources alone
 */
export function shownStorageOf(
  found: EncryptionFound | undefined,
  crdName: string | undefined,
): Pick<MigrationResult, "encryption" | "encoding"> {
  if (found === undefined) {
    return {};
  }
  const { configHash: encryption, encoding } = found;
  return crdName === undefined || encoding === undefined ? { encryption } : { encryption, encoding };
}
