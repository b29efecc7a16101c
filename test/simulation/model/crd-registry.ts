import type { CustomResourceDefinition } from "../../../src/api/crd.ts";
import { storageVersionHashOf } from "../../../src/api/crd.ts";
import { apiVersionOf } from "../../../src/kube/resources.ts";
import { isSame, type ModelObject } from "./model-object.ts";
import type { CrdFacts, CrdNames, CrdStorage, CrdVersionFacts, ServedKind } from "./served-kinds.ts";
import type { Schema } from "./schemas.ts";
import type { EtcdEntry } from "./timeline.ts";

/** Where etcd has the CRDs. */
export const CRD_PREFIX = "/registry/apiextensions.k8s.io/customresourcedefinitions/";

/** What one part of one API server knows of the CRDs. It follows when it is told to. */
export class CrdRegistry {
  readonly #byName = new Map<string, CrdStorage>();
  /** Which revision of a CRD was taken last: it never goes back to an earlier one. */
  readonly #followed = new Map<string, number>();
  #withWebhook: readonly CrdStorage[] = [];
  /** What discovery answers about these CRDs, by path: it is as it was until one of them changes. */
  readonly answers = new Map<string, string>();

  /** By `plural.group`. */
  get(name: string): CrdStorage | undefined {
    return this.#byName.get(name);
  }

  /** Of the objects that a key of etcd is about, where a webhook converts them. */
  ofKey(key: string): CrdStorage | undefined {
    for (const crd of this.#withWebhook) if (key.startsWith(prefixOfCrd(crd))) return crd;
    return undefined;
  }

  all(): Iterable<CrdStorage> {
    return this.#byName.values();
  }

  /** Forgets all CRDs. */
  clear(): void {
    this.#byName.clear();
    this.#followed.clear();
    this.#changed();
  }

  /** Whether it has yet to take a CRD as it was at a revision. */
  isBehind(name: string, revision: number): boolean {
    return (this.#followed.get(name) ?? 0) < revision;
  }

  /**
   * Takes a CRD as it was at a revision, `undefined` where it was gone.
   * @param entry what etcd had then
   * @param now the revision that etcd is at
   * @returns the handler that is no longer used, whose watches end
   */
  follow(
    name: string,
    entry: EtcdEntry | undefined,
    { revision, now }: { readonly revision: number; readonly now: number },
  ): CrdStorage | undefined {
    this.#followed.set(name, revision);
    const before = this.#byName.get(name);
    if (entry === undefined) {
      this.#byName.delete(name);
      this.#changed();
      return before;
    }
    const facts = crdFactsOf(entry);
    if (before?.facts === facts) return undefined;
    const isKept = before !== undefined && before.facts.uid === facts.uid && isSame(before.facts.spec, facts.spec);
    const fresh = {
      since: now,
      filled: new Set<string>(),
      converted: new WeakMap<EtcdEntry, Map<string, ModelObject>>(),
    };
    this.#byName.set(name, isKept ? { ...before, facts } : { facts, ...fresh });
    this.#changed();
    return isKept ? undefined : before;
  }

  #changed(): void {
    this.answers.clear();
    this.#withWebhook = [...this.#byName.values()].filter(({ facts }) => facts.conversionUrl !== undefined);
  }
}

/** Where etcd has the objects of a CRD. */
export function prefixOfCrd({ facts: { group, names } }: CrdStorage): string {
  return `/registry/${group}/${names.plural}/`;
}

const factsOfEntries = new WeakMap<EtcdEntry, CrdFacts>();

/** Read once for all API servers. */
export function crdFactsOf(entry: EtcdEntry): CrdFacts {
  let facts = factsOfEntries.get(entry);
  if (facts === undefined) {
    facts = readFacts(entry.object as unknown as CustomResourceDefinition);
    factsOfEntries.set(entry, facts);
  }
  return facts;
}

function readFacts({ metadata, spec, status }: CustomResourceDefinition): CrdFacts {
  const names = spec.names as unknown as CrdNames;
  const versions = spec.versions.map(({ name, schema, served, subresources }) => ({
    name,
    served,
    hasStatus: (subresources as { status?: unknown } | undefined)?.status !== undefined,
    schema: (schema as { openAPIV3Schema?: Schema } | undefined)?.openAPIV3Schema,
  }));
  const isTrue = (type: string): boolean =>
    (status?.conditions ?? []).some((condition) => condition.type === type && condition.status === "True");
  const facts = {
    name: metadata.name,
    uid: metadata.uid,
    group: spec.group,
    names,
    versions,
    spec,
    namespaced: spec.scope === "Namespaced",
    storageVersion: spec.versions.find(({ storage }) => storage)?.name ?? "",
    isEstablished: isTrue("Established") || isTrue("NamesAccepted"),
    isTerminating: isTrue("Terminating"),
    conversionUrl: conversionUrlOf(spec.conversion),
  };
  return { ...facts, kinds: new Map(versions.map((version) => [version.name, kindOf(facts, version)])) };
}

/** Whether clients can use the version that objects are stored in. */
export function isStorageServed({ storageVersion, versions }: Pick<CrdFacts, "storageVersion" | "versions">): boolean {
  return versions.some(({ name, served }) => name === storageVersion && served);
}

function kindOf(facts: Omit<CrdFacts, "kinds">, { hasStatus, name, schema }: CrdVersionFacts): Omit<ServedKind, "crd"> {
  const { group, names, namespaced, storageVersion } = facts;
  return {
    group,
    version: name,
    resource: names.plural,
    kind: names.kind,
    listKind: names.listKind,
    namespaced,
    hasStatus,
    singular: names.singular,
    shortNames: names.shortNames,
    apiVersion: apiVersionOf(group, name),
    schema,
    hasGeneration: true,
    prefix: `/registry/${group}/${names.plural}/`,
    storedApiVersion: apiVersionOf(group, storageVersion),
    // Discovery goes through the served versions, and takes the hash of the one that is the storage version.
    storageVersionHash: isStorageServed(facts) ? storageVersionHashOf(group, storageVersion, names.kind) : "",
  };
}

function conversionUrlOf(conversion: CustomResourceDefinition["spec"]["conversion"]): string | undefined {
  if (conversion?.strategy !== "Webhook") return undefined;
  const { clientConfig } = conversion["webhook"] as { clientConfig: HookClientConfig };
  return hookUrlOf(clientConfig);
}

/** Where a webhook is. */
export interface HookClientConfig {
  readonly url?: string;
  readonly service?: {
    readonly namespace: string;
    readonly name: string;
    readonly path?: string;
    readonly port?: number;
  };
  /** Base64 of PEM. */
  readonly caBundle?: string;
}

/** The URL of a webhook, as errors name it. */
export function hookUrlOf({ service, url }: HookClientConfig): string {
  if (url !== undefined || service === undefined) return url ?? "";
  const { name, namespace, path = "/", port = 443 } = service;
  return `https://${name}.${namespace}.svc:${port}${path}`;
}
