import { Readable } from "node:stream";
import type { StorageVersionMigration } from "../../src/api/migration.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import type { ApiRequest, ApiResponse } from "../../src/kube/api-request.ts";
import type { Transport } from "../../src/kube/transport.ts";
import { groupList } from "../kube/local-server.ts";

type Body = {
  readonly metadata?: { readonly resourceVersion?: string; readonly annotations?: Readonly<Record<string, string>> };
  readonly spec?: object;
  readonly status?: object;
};

const MIGRATIONS_PATH = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations";

/** An answer instead of the real one; `undefined` where the request is answered as it should be. */
export type Refusal = (request: ApiRequest) => ApiError | undefined;
/** What is told instead of an answer to a request that was carried out; `undefined` where it is answered. */
export type Loss = (request: ApiRequest) => Error | undefined;

/**
 * The migrations of a cluster with nothing else in it: lists, watches and merge patches with their preconditions as the
 * API server has them. A test of the controller that takes minutes of its clock needs no real one.
 */
export class ApiStandIn {
  readonly client: ApiClient;
  /** Every write, as `METHOD path`. */
  readonly writes: string[] = [];
  refusal: Refusal = () => undefined;
  loss: Loss = () => undefined;
  /** Whether the Lease is there that suspends all migrations. */
  isSuspended = false;
  readonly #migrations = new Map<string, StorageVersionMigration>();
  readonly #watches = new Set<Readable>();
  #version = 1;

  constructor() {
    const transport = {
      server: "https://stand-in",
      request: (request: ApiRequest) => this.#request(request),
      read: async (request: ApiRequest, read: (body: Readable) => Promise<unknown>) => {
        const { body, ...answer } = await this.#request(request);
        return { ...answer, body: await read(Readable.from([Buffer.from(JSON.stringify(body))])) };
      },
      stream: (request: ApiRequest) => this.#stream(request),
      fencedBy: () => transport,
    };
    this.client = new ApiClient(transport as unknown as Transport);
  }

  add(
    name: string,
    fields: {
      readonly created: string;
      readonly suspend?: boolean;
      /** @default the name with an s */
      readonly resource?: string;
      readonly annotations?: Readonly<Record<string, string>>;
    },
  ): void {
    const about = { name, uid: `uid-${name}`, resourceVersion: this.#next(), creationTimestamp: fields.created };
    const metadata = { ...about, ...(fields.annotations === undefined ? {} : { annotations: fields.annotations }) };
    const resource = { group: "example.com", version: "v1", resource: fields.resource ?? `${name}s` };
    const spec = { resource, ...(fields.suspend === undefined ? {} : { suspend: fields.suspend }) };
    const type = { apiVersion: "migration.k8s.io/v1alpha1", kind: "StorageVersionMigration" };
    this.#store("ADDED", { ...type, metadata, spec });
  }

  get(name: string): StorageVersionMigration {
    const found = this.#migrations.get(name);
    if (found === undefined) {
      throw new Error(`${name} is not there`);
    }
    return found;
  }

  #next(): string {
    return String(++this.#version);
  }

  #store(type: string, object: StorageVersionMigration): void {
    this.#migrations.set(object.metadata.name, object);
    for (const watch of this.#watches) {
      watch.push(`${JSON.stringify({ type, object })}\n`);
    }
  }

  async #request(request: ApiRequest): Promise<ApiResponse<unknown>> {
    request.signal?.throwIfAborted();
    if (request.method !== "GET") {
      this.writes.push(`${request.method} ${request.path}`);
    }
    const refused = this.refusal(request);
    if (refused !== undefined) {
      throw refused;
    }
    const body = structuredClone(this.#answer(request));
    const lost = this.loss(request);
    if (lost !== undefined) {
      throw lost;
    }
    return { status: 200, body, serverTime: undefined };
  }

  #answer({ method, path, body }: ApiRequest): unknown {
    const metadata = { resourceVersion: String(this.#version) };
    if (path === MIGRATIONS_PATH) {
      return { kind: "StorageVersionMigrationList", metadata, items: [...this.#migrations.values()] };
    }
    if (path.startsWith(`${MIGRATIONS_PATH}/`)) {
      const [name = "", subresource] = path.slice(MIGRATIONS_PATH.length + 1).split("/");
      return method === "PATCH" ? this.#patch(name, subresource, body as Body) : this.get(name);
    }
    if (path === "/apis") {
      return groupList("migration.k8s.io/v1alpha1");
    }
    if (path.endsWith("/leases")) {
      const annotations = { "ksvm.sigs.k8s.io/suspend-all": "2026-01-01T00:00:00Z" };
      const lease = { metadata: { name: "ksvm-suspend", uid: "s", resourceVersion: "1", annotations } };
      return { kind: "LeaseList", metadata, items: this.isSuspended ? [lease] : [] };
    }
    if (path.endsWith("/customresourcedefinitions")) {
      return { kind: "CustomResourceDefinitionList", metadata, items: [] };
    }
    if (path.endsWith("/events")) {
      return {};
    }
    const name = path.split("/").at(-1) ?? "";
    const answer = { kind: "Status", reason: "NotFound", message: `"${name}" not found`, details: { name } } as const;
    throw new ApiError(`${method} ${path}`, 404, { answer });
  }

  #patch(name: string, subresource: string | undefined, patch: Body): StorageVersionMigration {
    const before = this.get(name);
    if (patch.metadata?.resourceVersion !== before.metadata.resourceVersion) {
      throw new ApiError(`PATCH ${name}`, 409, { text: "the object has been modified" });
    }
    const annotations = { ...before.metadata.annotations, ...patch.metadata.annotations };
    const metadata = { ...before.metadata, annotations, resourceVersion: this.#next() };
    const after = (
      subresource === "status"
        ? { ...before, metadata, status: withoutNulls({ ...before.status, ...patch.status }) }
        : { ...before, metadata, spec: withoutNulls({ ...before.spec, ...patch.spec }) }
    ) as StorageVersionMigration;
    this.#store("MODIFIED", after);
    return after;
  }

  async #stream({ path, signal }: ApiRequest): Promise<Readable> {
    const stream = new Readable({ read: () => undefined });
    const end = (): void => {
      this.#watches.delete(stream);
      stream.destroy();
    };
    signal?.addEventListener("abort", end, { once: true });
    if (path === MIGRATIONS_PATH) {
      this.#watches.add(stream);
    }
    return stream;
  }
}

function withoutNulls(object: object): object {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== null));
}
