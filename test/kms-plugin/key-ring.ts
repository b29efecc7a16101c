import { createCipheriv, createDecipheriv, createHash, randomBytes } from "node:crypto";

const ALGORITHM = "aes-256-gcm";
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/**
 * The keys of a key management service, each by its id. The bytes of a key follow from its id, so that two plugins mean the same
 * key by the same id, as two plugins that ask one service do.
 */
export class KeyRing {
  #current: string;
  readonly #known: Set<string>;

  /** @param current the id of the only key */
  constructor(current: string) {
    this.#current = current;
    this.#known = new Set([current]);
  }

  /** The id of the key that encrypts. */
  get current(): string {
    return this.#current;
  }

  /** Encrypts with this key from now on; all others still decrypt. */
  rotate(id: string): void {
    this.#known.add(id);
    this.#current = id;
  }

  /** Forgets a key for good: what it encrypted cannot be decrypted any more. */
  remove(id: string): void {
    if (id === this.#current) throw new Error(`Cannot remove key "${id}": it encrypts`);
    this.#known.delete(id);
  }

  /** @returns nonce, tag and ciphertext; the id of the key is bound to it */
  encrypt(plaintext: Buffer): { readonly id: string; readonly ciphertext: Buffer } {
    const id = this.#current;
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv(ALGORITHM, bytesOf(id), nonce).setAAD(Buffer.from(id));
    const encrypted = Buffer.concat([cipher.update(plaintext), cipher.final()]);
    return { id, ciphertext: Buffer.concat([nonce, cipher.getAuthTag(), encrypted]) };
  }

  /** @throws {Error} where the key is not known, or is not the one that encrypted this. */
  decrypt(id: string, ciphertext: Buffer): Buffer {
    if (!this.#known.has(id)) throw new Error(`Cannot decrypt: key "${id}" is not known`);
    const nonce = ciphertext.subarray(0, NONCE_BYTES);
    const decipher = createDecipheriv(ALGORITHM, bytesOf(id), nonce).setAAD(Buffer.from(id));
    decipher.setAuthTag(ciphertext.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES));
    return Buffer.concat([decipher.update(ciphertext.subarray(NONCE_BYTES + TAG_BYTES)), decipher.final()]);
  }
}

function bytesOf(id: string): Buffer {
  return createHash("sha256").update(id).digest();
}
