import { setTimeout as sleep } from "node:timers/promises";

import type { NewObject } from "../test/api-client.ts";
import type { ApiserverOptions } from "../test/control-plane/apiserver.ts";
import { encryptionConfig, storedWith } from "../test/control-plane/encryption.ts";
import type { Cluster } from "../test/integration/cluster.ts";

const NAMESPACES = { group: "", version: "v1", resource: "namespaces" };
const SECRETS = { group: "", version: "v1", resource: "secrets" };
const NAMESPACE = "bench";
const PREFIX = "/registry/secrets/";
/** What an API server does after its start is no part of what is measured. */
const QUIET_MS = 5_000;

/** What an API server is started with that encrypts Secrets with the first of these keys, and knows the others. */
export function withKeys(...keys: readonly string[]): ApiserverOptions {
  return { encryptionConfig: encryptionConfig(keys, ["secrets"]) };
}

/** Secrets whose key can be rotated again and again. */
export class EncryptedSecrets {
  readonly #cluster: Cluster;
  #rotations = 0;
  #count = 0;

  /** @param cluster was started `withKeys("key0")` */
  constructor(cluster: Cluster) {
    this.#cluster = cluster;
  }

  /** How many there are. */
  get count(): number {
    return this.#count;
  }

  /** Creates as many as are missing, with so many bytes of data each. */
  async growTo(count: number, bytes: number): Promise<void> {
    const { api } = this.#cluster;
    if (this.#count === 0) {
      await api.create(NAMESPACES, { apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } });
    }
    const stringData = { text: "x".repeat(bytes) };
    const made = Array.from({ length: count - this.#count }, (_, index): NewObject => {
      const metadata = { name: `s${this.#count + index}`, namespace: NAMESPACE };
      return { apiVersion: "v1", kind: "Secret", metadata, stringData };
    });
    await this.#cluster.createObjects(SECRETS, made);
    this.#count = count;
  }

  /** Has the API server encrypt with a new key from now on; it is restarted for that. */
  async rotate(signal: AbortSignal): Promise<void> {
    const { controlPlane } = this.#cluster;
    const before = `key${this.#rotations}`;
    this.#rotations++;
    await controlPlane.restartApiserver(0, withKeys(`key${this.#rotations}`, before));
    // Each run begins with an etcd that holds one revision of each object.
    await controlPlane.stored.compact(await controlPlane.stored.currentRevision());
    await sleep(QUIET_MS, undefined, { signal });
  }

  /** @throws {Error} when an object does not have the newest key */
  async verify(): Promise<void> {
    const stored = await this.#cluster.controlPlane.stored.objectsUnder(PREFIX);
    const others = stored.filter(({ encryptedWith }) => encryptedWith !== storedWith(`key${this.#rotations}`));
    if (others.length > 0 || stored.length < this.#count) {
      throw new Error(`Cannot count this run: ${others.length} of ${stored.length} Secrets do not have the new key`);
    }
  }
}
