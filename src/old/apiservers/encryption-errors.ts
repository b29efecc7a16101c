import { KsvmError } from "../../errors.ts";
import type { Disagreement } from "./encryption-agreement.ts";

/** API servers do not encrypt alike, as while a new configuration is being rolled out. */
export class EncryptionDiffers extends KsvmError {
  override readonly name = "EncryptionDiffers";

  constructor(what: string, { server, reason }: Disagreement, advice: string) {
    super(
      "NotConverged",
      `Cannot tell which key ${what} has: the API servers do not encrypt alike: ${server}: ${reason}${advice}`,
    );
  }
}

/**
 * That it is not known whether all API servers encrypt alike.
 * @param what what is re-encrypted
 */
export function encryptionErrorOf(
  disagreement: Disagreement,
  what: string,
  { isUnattended = false }: { readonly isUnattended?: boolean },
): KsvmError {
  const { server, reason, isUntold, todo } = disagreement;
  if (!isUntold) {
    const advice = isUnattended || todo === undefined ? "" : `; ${todo}, and run again`;
    return new EncryptionDiffers(what, disagreement, advice);
  }
  // A controller has no such flag.
  const orAssume = isUnattended
    ? ""
    : ", or pass --assume-config-rolled-out if you are sure that every API server uses the new one";
  const text = `${server} does not show which encryption configuration it uses: ${reason}; see docs/reencryption.md`;
  return new KsvmError("EncryptionUnknown", `Cannot tell which key ${what} has: ${text}${orAssume}`);
}
