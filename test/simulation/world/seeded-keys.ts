import { generateKeyPairSync } from "node:crypto";
import forge from "node-forge";
import type { KeySource } from "../../../src/certs/issue.ts";
import type { Random } from "../../chaos/random.ts";

/** More than are in use at the same time in one world. */
const KEYS = 24;
/** Shared by all worlds: no check looks at a key, only at who signed what. */
const made: forge.pki.rsa.KeyPair[] = [];

/**
 * Keys of a world. To make one takes 50 ms, so that there are a few, which are used in turn; nothing that happens depends on
 * which they are. Serial numbers and names of CAs come from the seed.
 */
export function seededKeys(random: Random): KeySource {
  let next = 0;
  return {
    generateKeyPair: async () => keyAt(next++ % KEYS),
    randomBytes: (length) => Buffer.from(Array.from({ length }, () => Math.floor(random() * 256))),
  };
}

function keyAt(index: number): forge.pki.rsa.KeyPair {
  let pair = made[index];
  if (pair === undefined) {
    const { privateKey, publicKey } = generateKeyPairSync("rsa", {
      modulusLength: 2_048,
      publicKeyEncoding: { type: "spki", format: "pem" },
      privateKeyEncoding: { type: "pkcs1", format: "pem" },
    });
    pair = { privateKey: forge.pki.privateKeyFromPem(privateKey), publicKey: forge.pki.publicKeyFromPem(publicKey) };
    made[index] = pair;
  }
  return pair;
}
