import { setTimeout as delay } from "node:timers/promises";
import { discover } from "../src/apiservers/converge.ts";
import type { Client } from "../src/kube/client.ts";
import { ApiError, isAbsent } from "../src/kube/errors.ts";
import { type KubeList, MERGE_PATCH, METADATA_LIST, type ObjectMeta } from "../src/kube/objects.ts";

export { APPLY_PATCH, JSON_PATCH, MERGE_PATCH, METADATA as ACCEPT_METADATA } from "../src/kube/objects.ts";

/** A resource of the API: where its objects live. */
export interface Resource {
  /** Empty for the core group. */
  readonly group: string;
  readonly version: string;
  /** The plural, as in the path. */
  readonly resource: string;
}

const ADMISSION = { group: "admissionregistration.k8s.io", version: "v1" } as const;
const MIGRATION_API = { group: "migration.k8s.io", version: "v1alpha1" } as const;

export const CRDS: Resource = { group: "apiextensions.k8s.io", version: "v1", resource: "customresourcedefinitions" };
export const LEASES: Resource = { group: "coordination.k8s.io", version: "v1", resource: "leases" };
export const POLICIES: Resource = { ...ADMISSION, resource: "validatingadmissionpolicies" };
export const POLICY_BINDINGS: Resource = { ...ADMISSION, resource: "validatingadmissionpolicybindings" };
export const WEBHOOK_CONFIGURATIONS: Resource = { ...ADMISSION, resource: "validatingwebhookconfigurations" };
export const MIGRATIONS: Resource = { ...MIGRATION_API, resource: "storageversionmigrations" };
export const STORAGE_STATES: Resource = { ...MIGRATION_API, resource: "storagestates" };
export const SECRETS: Resource = { group: "", version: "v1", resource: "secrets" };
export const EVENTS: Resource = { group: "", version: "v1", resource: "events" };
export const DEPLOYMENTS: Resource = { group: "apps", version: "v1", resource: "deployments" };
export const CLUSTER_ROLES: Resource = {
  group: "rbac.authorization.k8s.io",
  version: "v1",
  resource: "clusterroles",
};
export const API_SERVICES: Resource = { group: "apiregistration.k8s.io", version: "v1", resource: "apiservices" };
export const STORAGE_VERSIONS: Resource = {
  group: "internal.apiserver.k8s.io",
  version: "v1alpha1",
  resource: "storageversions",
};

/** Which object. */
export interface ObjectRef {
  readonly name: string;
  readonly namespace?: string;
}

/** The shape that every object of the API has. */
export interface KubeObject {
  readonly apiVersion?: string;
  readonly kind?: string;
  readonly metadata: Partial<ObjectMeta> & { readonly generateName?: string };
}

/** An object to create. */
export type NewObject = KubeObject & Readonly<Record<string, unknown>>;

interface CallOptions {
  readonly signal?: AbortSignal | undefined;
}

interface WriteOptions extends CallOptions {
  readonly fieldManager?: string;
  readonly dryRun?: boolean;
  readonly force?: boolean;
  readonly subresource?: string;
  readonly accept?: string;
}

/** One request, by its path. */
export interface ApiRequest extends CallOptions {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  readonly path: string;
  readonly query?: Readonly<Record<string, string | number | boolean | undefined>>;
  readonly body?: unknown;
  readonly contentType?: string;
  readonly accept?: string;
}

const NEVER = new AbortController().signal;
const PATIENCE_MS = 10_000;
const PAUSE_MS = 200;

/**
 * What tests ask of a real API server, by resource and name. For a moment after a CRD was changed it answers 429 or 503 for
 * its objects, on a busy machine for some seconds. A request that is refused so has done nothing, and is sent again.
 */
export class ApiClient {
  readonly kube: Client;

  constructor(kube: Client) {
    this.kube = kube;
  }

  /** @returns what is answered, as the test knows it */
  // oxlint-disable-next-line typescript/no-unnecessary-type-parameters
  async request<T>({ body, contentType, method, path, signal = NEVER, ...rest }: ApiRequest): Promise<{ body: T }> {
    const startedAt = performance.now();
    const options = Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== undefined));
    for (;;) {
      try {
        const sent = { body, ...(contentType === undefined ? {} : { contentType }) };
        return await this.kube.request<T>(method, path, { ...options, signal }, sent);
      } catch (error) {
        if (!isBeingReplaced(error) || performance.now() - startedAt > PATIENCE_MS) throw error;
        await delay(PAUSE_MS, undefined, { signal });
      }
    }
  }

  async get<T>(resource: Resource, ref: ObjectRef, { signal }: CallOptions = {}): Promise<T> {
    return (await this.request<T>({ method: "GET", path: objectPath(resource, ref), signal })).body;
  }

  /** `undefined` where the object does not exist. */
  async find<T>(resource: Resource, ref: ObjectRef, options: CallOptions = {}): Promise<T | undefined> {
    return this.get<T>(resource, ref, options).catch((error: unknown) => {
      if (isAbsent(error, ref.name)) return undefined;
      throw error;
    });
  }

  async list<T>(
    resource: Resource,
    { labelSelector, namespace, signal }: CallOptions & { namespace?: string; labelSelector?: string } = {},
  ): Promise<readonly T[]> {
    const path = collectionPath(resource, namespace);
    const request = { method: "GET", path, query: { labelSelector }, signal } as const;
    return (await this.request<{ items: readonly T[] | null }>(request)).body.items ?? [];
  }

  async listMetadata(
    resource: Resource,
    { limit, signal }: CallOptions & { readonly limit?: number } = {},
  ): Promise<KubeList<{ readonly metadata: ObjectMeta }>> {
    const path = collectionPath(resource);
    const request = { method: "GET", path, query: { limit }, accept: METADATA_LIST, signal } as const;
    const { body } = await this.request<KubeList<{ readonly metadata: ObjectMeta }>>(request);
    return { ...body, items: body.items ?? [] };
  }

  async create<T>(resource: Resource, body: NewObject, { signal, ...options }: WriteOptions = {}): Promise<T> {
    const path = collectionPath(resource, body.metadata.namespace);
    return (await this.request<T>({ method: "POST", path, query: queryOf(options), body, signal })).body;
  }

  async patch<T>(
    resource: Resource,
    ref: ObjectRef,
    { body, type = MERGE_PATCH }: { readonly type?: string; readonly body: unknown },
    { accept, signal, subresource, ...options }: WriteOptions = {},
  ): Promise<T> {
    const path = objectPath(resource, ref) + (subresource === undefined ? "" : `/${subresource}`);
    const request = { method: "PATCH", path, query: queryOf(options), body, contentType: type, signal } as const;
    return (await this.request<T>({ ...request, ...(accept === undefined ? {} : { accept }) })).body;
  }

  /** One that does not exist counts as deleted. */
  async delete(
    resource: Resource,
    ref: ObjectRef,
    { preconditions, signal }: CallOptions & { readonly preconditions?: object } = {},
  ): Promise<void> {
    const body = { apiVersion: "v1", kind: "DeleteOptions", ...(preconditions === undefined ? {} : { preconditions }) };
    await this.request({ method: "DELETE", path: objectPath(resource, ref), body, signal }).catch((error: unknown) => {
      if (!isAbsent(error, ref.name)) throw error;
    });
  }
}

function isBeingReplaced(error: unknown): boolean {
  if (!(error instanceof ApiError)) return false;
  const isReinitializing = error.status === 429 && error.said.includes("(re)initializing");
  return isReinitializing || (error.status === 503 && error.said.includes("apiserver is shutting down"));
}

function queryOf({ dryRun, fieldManager, force }: WriteOptions): Record<string, string | undefined> {
  return {
    fieldManager,
    dryRun: dryRun === true ? "All" : undefined,
    force: force === true ? "true" : undefined,
  };
}

/** Whether a precondition failed, or the object exists already. */
export function isConflict(error: unknown): error is ApiError {
  return error instanceof ApiError && error.status === 409;
}

/** The path of all objects of a resource, over all namespaces or in one. */
export function collectionPath({ group, resource, version }: Resource, namespace?: string): string {
  const base = group === "" ? `/api/${version}` : `/apis/${group}/${version}`;
  return `${base}${namespace === undefined ? "" : `/namespaces/${encodeURIComponent(namespace)}`}/${resource}`;
}

export function objectPath(resource: Resource, { name, namespace }: ObjectRef): string {
  return `${collectionPath(resource, namespace)}/${encodeURIComponent(name)}`;
}

/** The resources of a version, as discovery lists them. */
export function resourcesOf({ kube }: ApiClient, version: Pick<Resource, "group" | "version">) {
  return discover(kube, version, { signal: NEVER });
}

/** Every version that `/apis` lists, and that of the core group. */
export async function listedVersions(api: ApiClient): Promise<readonly Pick<Resource, "group" | "version">[]> {
  const { body } = await api.request<{ groups: { name: string; versions: { version: string }[] }[] }>({
    method: "GET",
    path: "/apis",
  });
  const listed = body.groups.flatMap(({ name, versions }) => versions.map(({ version }) => ({ group: name, version })));
  return [{ group: "", version: "v1" }, ...listed];
}
