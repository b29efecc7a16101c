import { KsvmError } from "../errors.ts";
import { REENCRYPT_ANNOTATION } from "./names.ts";

/** What a migration is to re-encrypt with. */
export interface ReencryptionWish {
  /**
   * The digest of the EncryptionConfiguration that is meant, as API servers show it.
   * @default any, if all of them use it
   */
  readonly expectedConfig?: string;
}

type Annotations = Readonly<Record<string, string>>;

const DIGEST = /^(?:sha256:)?([0-9a-f]{64})$/;

/**
 * A digest as `sha256sum` prints it, or as API servers show it.
 * @returns as API servers show it; `undefined` where it is none
 */
export function configDigestOf(text: string): string | undefined {
  const [, digest] = DIGEST.exec(text) ?? [];
  return digest === undefined ? undefined : `sha256:${digest}`;
}

/**
 * What {@link REENCRYPT_ANNOTATION} asks for; `undefined` where the migration is not to re-encrypt.
 * @throws {KsvmError} AnnotationInvalid: a migration that succeeds without evidence is not what its user asked for.
 */
export function reencryptionWishOf(annotations: Annotations | undefined): ReencryptionWish | undefined {
  const value = annotations?.[REENCRYPT_ANNOTATION];
  if (value === undefined || value === "false") {
    return undefined;
  }
  const expectedConfig = configDigestOf(value);
  if (expectedConfig === undefined && value !== "true") {
    const values = '"true", "false" or the SHA-256 digest of an EncryptionConfiguration';
    throw new KsvmError(
      "AnnotationInvalid",
      `Cannot re-encrypt: the annotation ${REENCRYPT_ANNOTATION} is not ${values}`,
    );
  }
  return expectedConfig === undefined ? {} : { expectedConfig };
}

/** Whether a migration asks for re-encryption, also in a way that cannot be read. */
export function asksForReencryption(annotations: Annotations | undefined): boolean {
  return (annotations?.[REENCRYPT_ANNOTATION] ?? "false") !== "false";
}

/** The annotation that asks for it. */
export function reencryptAnnotation({ expectedConfig = "true" }: ReencryptionWish): Annotations {
  return { [REENCRYPT_ANNOTATION]: expectedConfig };
}
