import { createPublicKey, generateKeyPairSync, type KeyObject, sign, verify } from "node:crypto";
import type { CustomResourceDefinition } from "../../api/crd.ts";
import { CHECKPOINT_KEY_ANNOTATION } from "../../api/names.ts";

/**
 * The key of one attempt, by which its checkpoints can be told from those that another client wrote into the Lease. The half that
 * signs is in the memory of this process alone, and gone with it; the other half is on the CRD, which few clients may write.
 */
export class CheckpointKey {
  readonly #privateKey: KeyObject;
  /** The half that {@link isSignedBy} takes. */
  readonly publicKey: string;
  #hasSigned = false;

  constructor() {
    const { privateKey, publicKey } = generateKeyPairSync("ed25519");
    this.#privateKey = privateKey;
    this.publicKey = publicKey.export({ format: "der", type: "spki" }).toString("base64");
  }

  /** Whether there is a text that it has signed. */
  get hasSigned(): boolean {
    return this.#hasSigned;
  }

  /** @param checkpoint the text of a JSON object. A signature that it has is replaced */
  sign(checkpoint: string): string {
    this.#hasSigned = true;
    const { signature: _, ...fields } = JSON.parse(checkpoint) as { readonly signature?: unknown };
    const signature = sign(null, bytesOf(fields), this.#privateKey).toString("base64");
    return JSON.stringify({ ...fields, signature });
  }
}

/** Whether a text is as the attempt with this public key signed it; `false` for whatever is no such text or no key. */
export function isSignedBy(text: string, publicKey: string): boolean {
  try {
    const { signature, ...fields } = JSON.parse(text) as { readonly signature?: unknown };
    const key = createPublicKey({ key: Buffer.from(publicKey, "base64"), format: "der", type: "spki" });
    return typeof signature === "string" && verify(null, bytesOf(fields), key, Buffer.from(signature, "base64"));
  } catch {
    return false;
  }
}

/** The checkpoint, where the last attempt that froze this CRD wrote it; else `undefined`. */
export function signedCheckpoint(
  checkpoint: string | undefined,
  { metadata }: Pick<CustomResourceDefinition, "metadata">,
): string | undefined {
  const publicKey = metadata.annotations?.[CHECKPOINT_KEY_ANNOTATION];
  const isSigned = checkpoint !== undefined && publicKey !== undefined && isSignedBy(checkpoint, publicKey);
  return isSigned ? checkpoint : undefined;
}

function bytesOf(fields: object): Buffer {
  return Buffer.from(JSON.stringify(fields));
}
