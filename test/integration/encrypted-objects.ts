import { MERGE_PATCH, type NewObject, type Resource } from "../api-client.ts";
import { encryptionConfig } from "../control-plane/encryption.ts";
import type { StoredObject } from "../control-plane/stored-value.ts";
import type { Cluster } from "./cluster.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";

/** What the tests encrypt where they do not say. */
export const ENCRYPTED = ["secrets", "configmaps", `*.${GROUP}`];
/** A host name for each API server: it is what tells one from the other in their metrics. */
const HOSTS = ["alpha", "beta", "gamma"];
const SECRETS: Resource = { group: "", version: "v1", resource: "secrets" };
const CONFIG_MAPS: Resource = { group: "", version: "v1", resource: "configmaps" };

/** What an API server at this index is started with. */
export function optionsOf(index: number, keys: readonly string[], { resources = ENCRYPTED } = {}) {
  return {
    hostname: HOSTS[index] ?? "",
    encryptionConfig: encryptionConfig(keys, resources),
  };
}

/** Secrets, ConfigMaps and custom resources of one test, and how etcd has them. */
export class EncryptedObjects {
  readonly kind: TestKind;
  readonly #cluster: Cluster;
  /** Of the Secrets, the ConfigMaps and the custom resources. */
  readonly namespace: string;
  #before: readonly string[] = [];

  private constructor(cluster: Cluster, kind: TestKind) {
    this.#cluster = cluster;
    this.kind = kind;
    this.namespace = kind.plural;
  }

  /** Creates `count` of each, in a namespace of their own; of a CRD that is clean. */
  static async create(cluster: Cluster, count: number): Promise<EncryptedObjects> {
    const kind = new TestKind("kept");
    const objects = new EncryptedObjects(cluster, kind);
    await objects.#create(count);
    objects.#before = await objects.#read();
    return objects;
  }

  /** What `ksvm reencrypt` is given. */
  get names(): readonly string[] {
    return ["secrets", "configmaps", this.kind.name];
  }

  get #prefixes(): readonly (readonly [name: string, prefix: string])[] {
    return [
      ["secrets", `/registry/secrets/${this.namespace}/`],
      ["configmaps", `/registry/configmaps/${this.namespace}/`],
      [this.kind.name, `/registry/${GROUP}/${this.kind.plural}/`],
    ];
  }

  /** How many objects etcd holds with each key, "none" for those that are not encrypted. */
  async keys(): Promise<Record<string, number>> {
    const counts: Record<string, number> = {};
    for (const [, perKey] of await this.keysOfEach()) {
      for (const [key, count] of Object.entries(perKey)) {
        counts[key] = (counts[key] ?? 0) + count;
      }
    }
    return counts;
  }

  /** The same, of each resource by its name. */
  async keysOfEach(): Promise<ReadonlyMap<string, Readonly<Record<string, number>>>> {
    const found = new Map<string, Record<string, number>>();
    for (const [name, prefix] of this.#prefixes) {
      const counts: Record<string, number> = {};
      for (const { encryptedWith = "none" } of await this.#cluster.controlPlane.stored.objectsUnder(prefix)) {
        counts[encryptedWith] = (counts[encryptedWith] ?? 0) + 1;
      }
      found.set(name, counts);
    }
    return found;
  }

  /** All of them as etcd has them. */
  async stored(): Promise<readonly StoredObject[]> {
    const all = this.#prefixes.map(([, prefix]) => this.#cluster.controlPlane.stored.objectsUnder(prefix));
    return (await Promise.all(all)).flat();
  }

  /** Whether an API server reads all of them, with what was in them when they were created. */
  async areReadable(): Promise<boolean> {
    await this.#cluster.waitForVersion(this.kind, "v1");
    return JSON.stringify(await this.#read()) === JSON.stringify(this.#before);
  }

  /** Whether an update of a custom resource would be admitted. */
  canUpdate(name: string): Promise<boolean> {
    const ref = { name, namespace: this.namespace };
    const touch = { type: MERGE_PATCH, body: { metadata: { labels: { touched: "yes" } } } };
    return this.#cluster.api.patch(this.kind.resource("v1"), ref, touch, { dryRun: true }).then(
      () => true,
      () => false,
    );
  }

  async #create(count: number): Promise<void> {
    const { api } = this.#cluster;
    const namespace = this.namespace;
    await this.#cluster.createCrd(this.kind, { storage: "v1" });
    await api.create(
      { group: "", version: "v1", resource: "namespaces" },
      {
        apiVersion: "v1",
        kind: "Namespace",
        metadata: { name: namespace },
      },
    );
    const each = Array.from({ length: count }, (_, index) => ({ name: `o${index}`, namespace }));
    await this.#cluster.createObjects(SECRETS, each.map(core("Secret", { stringData: { password: "swordfish" } })));
    await this.#cluster.createObjects(CONFIG_MAPS, each.map(core("ConfigMap", { data: { color: "blue" } })));
    await this.#cluster.createObjects(
      this.kind.resource("v1"),
      each.map((metadata) => ({ ...this.kind.object(metadata.name, "v1"), metadata })),
    );
  }

  /** As text, without what a write of no change changes. */
  async #read(): Promise<readonly string[]> {
    const texts: string[] = [];
    for (const resource of [SECRETS, CONFIG_MAPS, this.kind.resource("v1")]) {
      const items = await this.#cluster.api.list<{ metadata: { name: string; resourceVersion?: string } }>(resource, {
        namespace: this.namespace,
      });
      texts.push(
        ...items.map((item) => JSON.stringify({ ...item, metadata: { ...item.metadata, resourceVersion: undefined } })),
      );
    }
    return texts.toSorted();
  }
}

function core(kind: string, data: object): (metadata: { name: string; namespace: string }) => NewObject {
  return (metadata) => ({ apiVersion: "v1", kind, metadata, ...data });
}
