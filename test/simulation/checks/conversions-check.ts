import { isDeepStrictEqual } from "node:util";
import { conversionBesidesBundle, type CustomResourceDefinition, storedVersionsOf } from "../../../src/api/crd.ts";
import type { JsonObject } from "../../../src/api/json-fields.ts";
import { CRD_PREFIX } from "../model/crd-registry.ts";
import { isFields } from "../model/model-object.ts";
import type { EtcdEntry } from "../model/timeline.ts";
import { currentWriter } from "../world/api-server-node.ts";
import { crdNameOf, objectsPrefixOf } from "../world/kinds.ts";
import { isByKsvm, type World } from "../world/world.ts";
import type { Check } from "./check.ts";

/** How the objects of a CRD are converted, and since when, in milliseconds since the world was set up. */
interface Converted {
  readonly uid: string;
  readonly conversion: JsonObject;
  readonly since: number;
}

/** What is known of a `ksvm migrate` or a `ksvm reencrypt`. */
interface Run {
  readonly begunAt: number;
  /** When every API server last showed it the storage version. */
  convergedAt?: number;
}

/**
 * A run that begins after a change of the conversion stores no object as it was converted before; and none prunes where the conversion
 * changed after it began to rest on it.
 */
export class ConversionsCheck implements Check {
  readonly name = "conversions";
  readonly #world: World;
  /** By the names of CRDs. */
  readonly #converted = new Map<string, Converted>();
  /** By the names of processes. */
  readonly #runs = new Map<string, Run>();

  constructor(world: World) {
    this.#world = world;
    const { etcd } = world.cluster;
    const names = new Map(world.plan.kinds.map((kind) => [objectsPrefixOf(kind), crdNameOf(kind)]));
    this.#readAll();
    etcd.onRevision((entry) => this.#written(entry, names));
    // What it takes back, API servers read as they start again.
    etcd.onRestore(() => {
      this.#converted.clear();
      this.#readAll();
    });
    world.witnesses.push(({ name }) => {
      const run: Run = { begunAt: world.schedule.now };
      this.#runs.set(name, run);
      return {
        told: ({ type }) => {
          if (type === "converged") run.convergedAt = world.schedule.now;
        },
        ended: () => undefined,
      };
    });
  }

  #readAll(): void {
    const crds = this.#world.cluster.etcd.range(CRD_PREFIX);
    for (const { key, object } of crds) this.#crdWritten(key.slice(CRD_PREFIX.length), object);
  }

  #written(entry: EtcdEntry, names: ReadonlyMap<string, string>): void {
    if (entry.key.startsWith(CRD_PREFIX)) {
      const name = entry.key.slice(CRD_PREFIX.length);
      if (entry.isDeleted) {
        this.#converted.delete(name);
        return;
      }
      this.#crdWritten(name, entry.object);
      if (isByKsvm()) this.#judgePrune(name, entry);
      return;
    }
    const name = [...names].find(([prefix]) => entry.key.startsWith(prefix))?.[1];
    if (name !== undefined && isByKsvm()) this.#judgeObject(name, entry);
  }

  #crdWritten(name: string, object: EtcdEntry["object"]): void {
    const crd = object as unknown as CustomResourceDefinition;
    const { uid } = crd.metadata;
    const conversion = conversionBesidesBundle(crd);
    const before = this.#converted.get(name);
    if (before?.uid === uid && isDeepStrictEqual(before.conversion, conversion)) return;
    this.#converted.set(name, { uid, conversion, since: this.#world.schedule.now });
  }

  #judgePrune(name: string, { before, object }: EtcdEntry): void {
    const [earlier, after] = [before?.object, object] as readonly unknown[] as readonly CustomResourceDefinition[];
    if (earlier === undefined || after === undefined) return;
    const isPrune = storedVersionsOf(after).length < storedVersionsOf(earlier).length;
    const { convergedAt = Number.POSITIVE_INFINITY } = this.#runs.get(currentWriter() ?? "") ?? {};
    const { since = 0 } = this.#converted.get(name) ?? {};
    if (isPrune && since > convergedAt) {
      this.#violate(`${currentWriter()} pruned ${name}, and its conversion changed after API servers converged`);
    }
  }

  #judgeObject(name: string, { before, isDeleted, key, object }: EtcdEntry): void {
    const state = this.#converted.get(name);
    const { begunAt = 0 } = this.#runs.get(currentWriter() ?? "") ?? {};
    const isRewritten = !isDeleted && before?.isDeleted === false && before.object.apiVersion !== object.apiVersion;
    if (state?.conversion["strategy"] !== "Webhook" || begunAt <= state.since || !isRewritten) return;
    const spec = isFields(object["spec"]) ? object["spec"] : {};
    if (spec["converted"] === object.apiVersion || spec["lost"] === true) return;
    this.#violate(`${currentWriter()} stored ${key} as ${object.apiVersion}, not as the webhook converts it`);
  }

  #violate(text: string): void {
    this.#world.violate(`conversion: ${text}`);
  }
}
