import type { CustomResourceDefinition } from "../api/crd.ts";
import type { ApiClient } from "../old/kube/client.ts";
import type { ListedObject } from "../old/kube/listed-object.ts";
import { collectionPath, CRDS } from "../old/kube/resources.ts";
import { TokenTrail } from "../old/kube/token-trail.ts";
import { CRD_FIELDS, type CrdFacts, crdFactsOf } from "./crd-facts.ts";

/** The part of {@link ApiClient} that is needed. */
export type CrdReader = Pick<ApiClient, "findFields" | "findListed" | "listPage">;

interface Known {
  /** What a look shows of the CRD as long as it has not changed; `undefined` where it changed while it was read. */
  readonly state: string | undefined;
  readonly facts: CrdFacts;
}

const PAGE_SIZE = 100;

/**
 * What the trigger keeps of each CRD. A CRD may be a megabyte, and the trigger looks at it again and again, so its
 * metadata is read first, and the whole object, one at a time, only where its metadata has changed. The resourceVersion alone does not tell:
 * after a restore of etcd from a backup another state of the CRD may have one that was seen before.
 */
export class CrdIndex {
  readonly #client: CrdReader;
  readonly #known = new Map<string, Known>();

  constructor(client: CrdReader) {
    this.#client = client;
  }

  /**
   * One CRD as it is now; `undefined` where there is none.
   * @throws {ApiError | TransportError}
   */
  async find(name: string, signal: AbortSignal): Promise<CrdFacts | undefined> {
    const found = await this.#client.findListed(CRDS, { name }, { signal });
    return found === undefined ? this.#forget(name) : this.#factsOf(found, signal);
  }

  /**
   * All CRDs, each as it is now.
   * @throws {ApiError | TransportError}
   */
  async all(signal: AbortSignal): Promise<ReadonlyMap<string, CrdFacts>> {
    const all = new Map<string, CrdFacts>();
    const trail = new TokenTrail(collectionPath(CRDS));
    let continueToken: string | undefined;
    do {
      const page = await this.#client.listPage(CRDS, { limit: PAGE_SIZE, continueToken, signal });
      for (const item of page.items) {
        const facts = await this.#factsOf(item, signal);
        if (facts !== undefined) {
          all.set(facts.name, facts);
        }
      }
      continueToken = trail.next(page.continueToken);
    } while (continueToken !== undefined);
    for (const name of [...this.#known.keys()].filter((known) => !all.has(known))) {
      this.#known.delete(name);
    }
    return all;
  }

  /** Of one that changes just now the newer state; `undefined` where it is deleted just now. */
  async #factsOf(listed: ListedObject, signal: AbortSignal): Promise<CrdFacts | undefined> {
    const { name } = listed;
    const state = stateOf(listed);
    const known = this.#known.get(name);
    if (known?.state === state) {
      return known.facts;
    }
    const crd = await this.#client.findFields<CustomResourceDefinition>(CRDS, { name }, CRD_FIELDS, { signal });
    if (crd === undefined) {
      return this.#forget(name);
    }
    const facts = crdFactsOf(crd);
    const { generation, resourceVersion, uid } = crd.metadata;
    const isListed =
      uid === listed.uid && resourceVersion === listed.resourceVersion && generation === listed.generation;
    this.#known.set(name, { state: isListed ? state : undefined, facts });
    return facts;
  }

  #forget(name: string): undefined {
    this.#known.delete(name);
    return undefined;
  }
}

function stateOf({ uid, resourceVersion, generation, digest }: ListedObject): string {
  return [uid, resourceVersion, generation, digest].join(" ");
}
