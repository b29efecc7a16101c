import { once } from "node:events";
import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";

import { storageVersionOf, storedVersionsOf } from "../test/crd.ts";
import { type NewObject, collectionPath } from "../test/api-client.ts";
import { type Cluster, eventually } from "../test/integration/cluster.ts";
import { type CrdShape, TestKind } from "../test/integration/crd-fixture.ts";

const VERSIONS = ["v1alpha1", "v1"] as const;

/**
 * After a change of the storage version an API server shows the new one a moment before it writes it, and `--settle 1s`
 * counts from that change: three seconds later neither is part of what is measured.
 */
const QUIET_MS = 3_000;

const CACHE_TIMEOUT_MS = 60_000;

/** A CRD with many objects, which can all be made stale again and again. */
export class StaleObjects {
  readonly kind = new TestKind("bench");
  readonly #cluster: Cluster;
  readonly #count: number;
  readonly #shape: Partial<CrdShape>;

  private constructor(cluster: Cluster, count: number, shape: Partial<CrdShape>) {
    this.#cluster = cluster;
    this.#count = count;
    this.#shape = shape;
  }

  /** Creates the CRD, and the objects in its storage version v1alpha1. */
  static async create(
    cluster: Cluster,
    options: { readonly objects: number; readonly size: number; readonly shape?: Partial<CrdShape> },
  ): Promise<StaleObjects> {
    const { objects, size, shape = {} } = options;
    const stale = new StaleObjects(cluster, objects, shape);
    const { kind } = stale;
    await cluster.createCrd(kind, { ...shape, storage: VERSIONS[0] });
    const manifests = kind.objects(objects, VERSIONS[0]).map((object) => padded(object, size));
    await cluster.createObjects(kind.resource(VERSIONS[0]), manifests);
    return stale;
  }

  /** Makes the other version the storage version, so that every object has to be rewritten, and lets that sink in. */
  async renew(signal: AbortSignal): Promise<void> {
    const { controlPlane } = this.#cluster;
    const before = storageVersionOf(await this.#cluster.crd(this.kind));
    const storage = VERSIONS.find((version) => version !== before) ?? VERSIONS[0];
    await this.#cluster.setVersions(this.kind, { ...this.#shape, storage });
    // Each run begins with an etcd that holds one revision of each object.
    await controlPlane.stored.compact(await controlPlane.stored.currentRevision());
    await sleep(QUIET_MS, undefined, { signal });
    for (const version of VERSIONS) (await this.#openWatch(version, signal)).destroy();
  }

  /**
   * Looks whether the migration did what it was to do, in etcd and in the CRD.
   * @returns whether storedVersions was pruned
   * @throws {Error} when an object is not in the storage version
   */
  async verify(): Promise<boolean> {
    const crd = await this.#cluster.crd(this.kind);
    const storage = storageVersionOf(crd);
    const stored = await this.#cluster.storedAs(this.kind);
    if (stored[storage] !== this.#count || Object.keys(stored).length !== 1) {
      throw new Error(
        `Cannot count this run: etcd holds ${JSON.stringify(stored)}, not ${this.#count} as "${storage}"`,
      );
    }
    return storedVersionsOf(crd).join() === storage;
  }

  /**
   * Begins to wait for the first write of an object.
   * @returns when it came, by performance.now(), once it has come
   */
  async watchFirstWrite(signal: AbortSignal): Promise<{ readonly cameAt: Promise<number> }> {
    const stream = await this.#openWatch(VERSIONS[1], signal);
    const cameAt = once(stream, "data", { signal }).then(() => performance.now());
    // Where nothing is ever written, the run's own error is the one that tells.
    cameAt.catch(() => undefined).finally(() => stream.destroy());
    return { cameAt };
  }

  /** After a change of the CRD each version's watch cache is filled again; until then a watch is answered with 429. */
  async #openWatch(version: string, signal: AbortSignal): Promise<Readable> {
    const { api } = this.#cluster;
    const { metadata } = await api.listMetadata(this.kind.resource(version), { limit: 1, signal });
    const path = collectionPath(this.kind.resource(version));
    const query = { watch: true, resourceVersion: metadata.resourceVersion };
    let stream: Readable | undefined;
    await eventually(
      async () => {
        const lines = await api.kube.lines(path, { query, signal }).catch(() => undefined);
        stream = lines && Readable.from(lines);
        return stream !== undefined;
      },
      `${path} can be watched`,
      CACHE_TIMEOUT_MS,
    );
    if (stream === undefined) throw new Error(`Cannot watch ${path}`);
    // Destroyed or aborted, it has nothing to tell any more.
    return stream.on("error", () => undefined);
  }
}

function padded(object: NewObject, size: number): NewObject {
  const spec = { ...(object["spec"] as object), text: "" };
  const length = JSON.stringify({ ...object, spec }).length;
  return { ...object, spec: { ...spec, text: "x".repeat(Math.max(0, size - length)) } };
}
