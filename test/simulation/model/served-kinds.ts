import { apiVersionOf } from "../../../src/kube/resources.ts";
import type { ModelObject } from "./model-object.ts";
import type { Schema } from "./schemas.ts";
import type { EtcdEntry } from "./timeline.ts";

/** One version of a resource, as one API server serves it at one moment: what a request is bound to. */
export interface ServedKind {
  readonly group: string;
  readonly version: string;
  readonly resource: string;
  /** In the version that is served. */
  readonly apiVersion: string;
  readonly kind: string;
  readonly listKind: string;
  readonly singular: string;
  readonly shortNames?: readonly string[] | undefined;
  readonly namespaced: boolean;
  readonly hasStatus: boolean;
  readonly hasGeneration: boolean;
  /** Of a custom resource, where not anything goes. */
  readonly schema?: Schema | undefined;
  /** Where etcd has its objects. */
  readonly prefix: string;
  /** What the API server writes. */
  readonly storedApiVersion: string;
  /** As discovery shows it; empty where it shows none. */
  readonly storageVersionHash: string;
  /** Of a custom resource. */
  readonly crd?: CrdStorage;
}

/** Whether an object that is stored in a version can be read. Built-in resources know every version there was. */
export function isDecodable({ crd, group }: ServedKind, apiVersion: string): boolean {
  return crd === undefined || crd.facts.versions.some(({ name }) => apiVersionOf(group, name) === apiVersion);
}

/** What an API server reads from a CRD. */
export interface CrdFacts {
  readonly name: string;
  readonly uid: string;
  readonly group: string;
  readonly namespaced: boolean;
  readonly versions: readonly CrdVersionFacts[];
  readonly storageVersion: string;
  readonly names: CrdNames;
  readonly isEstablished: boolean;
  readonly isTerminating: boolean;
  /** Of the webhook that converts; `undefined` where only the apiVersion changes. */
  readonly conversionUrl: string | undefined;
  readonly spec: unknown;
  /** What every version serves. */
  readonly kinds: ReadonlyMap<string, Omit<ServedKind, "crd">>;
}

/** One of `spec.versions`. */
export interface CrdVersionFacts {
  readonly name: string;
  readonly served: boolean;
  readonly hasStatus: boolean;
  /** `undefined` where anything goes. */
  readonly schema: Schema | undefined;
}

/** `spec.names`. */
export interface CrdNames {
  readonly plural: string;
  readonly singular: string;
  readonly kind: string;
  readonly listKind: string;
  readonly shortNames?: readonly string[];
}

/** The handler of a custom resource in one API server. Another spec gets another one, with a watch cache of its own. */
export interface CrdStorage {
  readonly facts: CrdFacts;
  /** The revision that its watch cache began with. */
  readonly since: number;
  /** The versions whose watch cache is filled. */
  readonly filled: Set<string>;
  /** What the conversion webhook made of what is stored, by version: the watch cache asks it once. */
  readonly converted: WeakMap<EtcdEntry, Map<string, ModelObject>>;
}

/** What a path names. */
export function kindKey({ group, resource, version }: Pick<ServedKind, "group" | "version" | "resource">): string {
  return `${group}/${version}/${resource}`;
}
