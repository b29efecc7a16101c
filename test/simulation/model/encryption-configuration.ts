import { createHash } from "node:crypto";

/** Which keys an API server encrypts with. */
export interface Encryption {
  /** 0 is plain text. */
  readonly writes: number;
  readonly reads: ReadonlySet<number>;
  /** The resources that are encrypted, by `resource.group`. */
  readonly resources: ReadonlySet<string>;
}

/** No value is encrypted: the API server has no configuration. */
export const PLAIN_TEXT: Encryption = { writes: 0, reads: new Set([0]), resources: new Set() };

const hashes = new WeakMap<Encryption, string>();

/** The digest of the configuration, as that of its file: `sha256:` and 64 digits. */
export function configHashOf(encryption: Encryption): string {
  let hash = hashes.get(encryption);
  if (hash === undefined) {
    const { reads, resources, writes } = encryption;
    hashes.set(encryption, (hash = digestOf(JSON.stringify([writes, [...reads], [...resources]]))));
  }
  return hash;
}

/** As API servers write digests. */
export function digestOf(text: string): string {
  return `sha256:${createHash("sha256").update(text).digest("hex")}`;
}
