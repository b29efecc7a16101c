import { isDeepStrictEqual } from "node:util";
import { conversionBesidesBundle, type CustomResourceDefinition, storedVersionsOf } from "../../../src/api/crd.ts";
import type { JsonObject } from "../../../src/api/json-fields.ts";
import type { ObjectMeta } from "../../../src/api/meta.ts";
import { freezerOf } from "../../../src/api/owner.ts";
import { CRD_PREFIX } from "../model/crd-registry.ts";
import { isFields } from "../model/model-object.ts";
import { resourcePathOf } from "../model/paths.ts";
import type { EtcdEntry } from "../model/timeline.ts";
import type { ModelRequest } from "../model/types.ts";
import { currentRequest, currentWriter } from "../world/api-server-node.ts";
import { crdNameOf, objectsPrefixOf } from "../world/kinds.ts";
import type { World } from "../world/world.ts";
import type { Check } from "./check.ts";

/** How the objects of a CRD are converted, and since when, in milliseconds since the world was set up. */
interface Converted {
  readonly uid: string;
  readonly conversion: JsonObject;
  readonly since: number;
}

/** A run that writes objects looks at its CRD as often, in milliseconds. */
const UNSEEN_MS = 10_000;

/** A write of an object: when the attempt began that sent it, and when it was sent. */
interface Sent {
  readonly attemptAt: number;
  readonly at: number;
}

/** What is known of a run. */
interface Run {
  /** When the attempt began that it writes for. */
  begunAt: number;
  /** When its last attempt began. */
  attemptAt: number;
  /** Since when it rests on what it saw of API servers. */
  convergedAt?: number;
}

/**
 * A run that begins after a change of the conversion stores no object as it was converted before; and none prunes where the conversion
 * changed after it began to rest on it. A run that begins again counts as one that begins once API servers have converged; a write counts for
 * the attempt that sent it. A run of a controller tells nothing: it begins where it puts its freeze on, and rests on what it
 * saw from its first write of an object. What was under way at the change is not judged, nor what a run that goes on sends within ten seconds: by then
 * it has looked at the CRD.
 */
export class ConversionsCheck implements Check {
  readonly name = "conversions";
  readonly #world: World;
  readonly #writer: () => string | undefined;
  /** By the names of CRDs. */
  readonly #converted = new Map<string, Converted>();
  /** Those of commands by the names of processes, those of controllers by these and the names of CRDs. */
  readonly #runs = new Map<string, Run>();
  /** When the attempt began that sent a write of an object: one that an API server holds may land in the next one. */
  readonly #sentWrites = new WeakMap<ModelRequest, Sent>();

  constructor(world: World, writer: () => string | undefined = currentWriter) {
    this.#world = world;
    this.#writer = writer;
    const { etcd } = world.cluster;
    const names = new Map(world.plan.kinds.map((kind) => [objectsPrefixOf(kind), crdNameOf(kind)]));
    this.#readAll();
    etcd.onRevision((entry) => this.#written(entry, names));
    // What it takes back, API servers read as they start again; what the backup has as well is no change.
    etcd.onRestore(() => {
      for (const name of this.#converted.keys()) {
        if (etcd.get(`${CRD_PREFIX}${name}`) === undefined) this.#converted.delete(name);
      }
      this.#readAll();
    });
    world.cluster.onRequest((request) => this.#sent(request));
    world.witnesses.push(({ name }) => {
      const { now } = world.schedule;
      const run: Run = { begunAt: now, attemptAt: now };
      this.#runs.set(name, run);
      return {
        told: ({ type }) => {
          if (type === "startingAgain") run.attemptAt = world.schedule.now;
          if (type !== "converged") return;
          run.convergedAt = world.schedule.now;
          run.begunAt = run.attemptAt;
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
      if (!this.#isByKsvm) return;
      this.#noteFreeze(name, entry);
      this.#judgePrune(name, entry);
      return;
    }
    const name = [...names].find(([prefix]) => entry.key.startsWith(prefix))?.[1];
    if (name !== undefined && this.#isByKsvm) this.#judgeObject(name, entry);
  }

  #crdWritten(name: string, object: EtcdEntry["object"]): void {
    const crd = object as unknown as CustomResourceDefinition;
    const { uid } = crd.metadata;
    const conversion = conversionBesidesBundle(crd);
    const before = this.#converted.get(name);
    if (before?.uid === uid && isDeepStrictEqual(before.conversion, conversion)) return;
    this.#converted.set(name, { uid, conversion, since: this.#world.schedule.now });
  }

  #noteFreeze(name: string, { before, object }: EtcdEntry): void {
    const writer = this.#writer() ?? "";
    const [earlier, after] = [before?.object, object].map((one) => one && freezerOf(one.metadata as ObjectMeta));
    const isOwn = after?.kind === "run" && after.owner.identity.startsWith(`${writer}_`);
    // An attempt that could not lift its freeze leaves it to the next one, which writes when it began.
    if (isDeepStrictEqual(earlier, after) || !isOwn || this.#runs.has(writer)) return;
    this.#runs.set(`${writer} ${name}`, { begunAt: 0, attemptAt: this.#world.schedule.now });
  }

  #sent(request: ModelRequest): void {
    const { method, path, query, user } = request;
    if (method !== "PATCH" || query.has("dryRun")) return;
    const { group, resource } = resourcePathOf(path) ?? {};
    const run = this.#runOn(user, `${resource}.${group}`);
    if (run === undefined) return;
    this.#sentWrites.set(request, { attemptAt: run.attemptAt, at: this.#world.schedule.now });
    if (run.convergedAt !== undefined) return;
    run.convergedAt = this.#world.schedule.now;
    run.begunAt = run.attemptAt;
  }

  #runOn(process: string | undefined, crd: string): Run | undefined {
    return this.#runs.get(process ?? "") ?? this.#runs.get(`${process} ${crd}`);
  }

  #judgePrune(name: string, { before, object }: EtcdEntry): void {
    const [earlier, after] = [before?.object, object] as readonly unknown[] as readonly CustomResourceDefinition[];
    if (earlier === undefined || after === undefined) return;
    const isPrune = storedVersionsOf(after).length < storedVersionsOf(earlier).length;
    const { convergedAt = Number.POSITIVE_INFINITY } = this.#runOn(this.#writer(), name) ?? {};
    const { since = 0 } = this.#converted.get(name) ?? {};
    if (isPrune && since > convergedAt) {
      this.#violate(`${this.#writer()} pruned ${name}, and its conversion changed after API servers converged`);
    }
  }

  #judgeObject(name: string, { before, isDeleted, key, object }: EtcdEntry): void {
    const state = this.#converted.get(name);
    const request = currentRequest();
    const sent = request && this.#sentWrites.get(request);
    const begunAt = sent?.attemptAt ?? this.#runOn(this.#writer(), name)?.begunAt ?? 0;
    const isRewritten = !isDeleted && before?.isDeleted === false && before.object.apiVersion !== object.apiVersion;
    if (state?.conversion["strategy"] !== "Webhook" || !isRewritten) return;
    if (begunAt <= state.since && (sent?.at ?? 0) <= state.since + UNSEEN_MS) return;
    const spec = isFields(object["spec"]) ? object["spec"] : {};
    if (spec["converted"] === object.apiVersion || spec["lost"] === true) return;
    this.#violate(`${this.#writer()} stored ${key} as ${object.apiVersion}, not as the webhook converts it`);
  }

  get #isByKsvm(): boolean {
    return this.#writer()?.startsWith("ksvm") === true;
  }

  #violate(text: string): void {
    this.#world.violate(`conversion: ${text}`);
  }
}
