import type { ObjectMeta, PartialObjectMetadata, PartialObjectMetadataList } from "../../api/meta.ts";
import type { Client } from "../../kube/client.ts";
import { isAbsent, isUnserved } from "./absent.ts";
import type { CallOptions, WriteOptions } from "./call-options.ts";
import { assertDeleted, listedIn, objectIn, writtenIn } from "./answered-object.ts";
import { ApiError } from "./errors.ts";
import { isAdmissionDenial } from "./failure.ts";
import type { Projection } from "../json/json-projection.ts";
import { readProjected } from "./list-projected.ts";
import { allItemsOf, itemsOf, type ListAnswer } from "./listed-items.ts";
import { type ListedObject, type ListedObjectOptions, MAX_OBJECT_BYTES } from "./listed-object.ts";
import { type ListedPage, readListedPage } from "./listed-page.ts";
import { ACCEPT_METADATA, ACCEPT_METADATA_LIST, collectionPath, objectPath, type Resource } from "./resources.ts";
import { type Fence, Transport } from "./transport.ts";

/** Which object, and until when. */
export interface ObjectRef {
  readonly name: string;
  readonly namespace?: string;
}

/** The shape that every object of the API has. */
export interface KubeObject {
  readonly apiVersion?: string;
  readonly kind?: string;
  readonly metadata: Partial<ObjectMeta>;
}

/** An object to create. */
export type NewObject = KubeObject & Readonly<Record<string, unknown>>;

/** Options of a metadata-only list. */
export interface ListOptions extends CallOptions {
  readonly labelSelector?: string;
  readonly limit?: number;
  readonly continueToken?: string | undefined;
}

/** Options of a page of which short fields are kept. */
export interface ListPageOptions extends ListOptions, ListedObjectOptions {}

/** Objects of an API server by resource and name. It never retries: who calls knows what a failure means. */
export class ApiClient {
  readonly transport: Transport;

  constructor(transport: Transport | Client) {
    this.transport = transport instanceof Transport ? transport : new Transport(transport);
  }

  /** What the engine asks the same API server by. */
  get kube(): Client {
    return this.transport.kube;
  }

  /** The same client, and `fence` before each request that stores something. */
  fencedBy(fence: Fence): ApiClient {
    return new ApiClient(this.transport.fencedBy(fence));
  }

  /**
   * Reads one object.
   * @throws {ApiError | TransportError}; {DoubtfulAnswer} where the answer is not this object.
   */
  async get<T>(resource: Resource, ref: ObjectRef, options: CallOptions = {}): Promise<T> {
    const path = objectPath(resource, ref);
    const response = await this.transport.request<T>({ method: "GET", path, signal: options.signal });
    return objectIn(response.body, { name: ref.name, path });
  }

  /** Like {@link get}, `undefined` where the object does not exist, see {@link isAbsent}. */
  async find<T>(resource: Resource, ref: ObjectRef, options: CallOptions = {}): Promise<T | undefined> {
    return unlessAbsent(ref.name, this.get<T>(resource, ref, options));
  }

  /**
   * Like {@link find}, and builds only what the projection names, `metadata.name` among it: what else a large object has
   * costs next to nothing.
   */
  async findFields<T>(
    resource: Resource,
    ref: ObjectRef,
    projection: Projection,
    options: CallOptions = {},
  ): Promise<T | undefined> {
    const path = objectPath(resource, ref);
    const request = { method: "GET", path, signal: options.signal } as const;
    const reading = this.transport.read(request, (stream) => readProjected(stream, projection));
    const found = await unlessAbsent(ref.name, reading);
    return found && objectIn(found.body as T, { name: ref.name, path });
  }

  /** Like {@link find}, also `undefined` where the API server does not serve the resource at all, see {@link isUnserved}. */
  async findIfServed<T>(resource: Resource, ref: ObjectRef, options: CallOptions = {}): Promise<T | undefined> {
    try {
      return await this.find<T>(resource, ref, options);
    } catch (error) {
      if (await isUnserved(this.transport, resource, error, options)) {
        return undefined;
      }
      throw error;
    }
  }

  /**
   * Reads the metadata of one object.
   * @throws {ApiError | TransportError}; {DoubtfulAnswer} where the answer is not this object.
   */
  async getMetadata(resource: Resource, ref: ObjectRef, options: CallOptions = {}): Promise<PartialObjectMetadata> {
    const path = objectPath(resource, ref);
    const { body } = await this.transport.request<PartialObjectMetadata>({
      method: "GET",
      path,
      accept: ACCEPT_METADATA,
      signal: options.signal,
    });
    return objectIn(body, { name: ref.name, path });
  }

  /**
   * Like {@link getMetadata}, `undefined` where the object does not exist, see {@link isAbsent}.
   * @throws {ApiError | TransportError}; {DoubtfulAnswer} where the answer is not this object.
   */
  async findMetadata(
    resource: Resource,
    ref: ObjectRef,
    options: CallOptions = {},
  ): Promise<PartialObjectMetadata | undefined> {
    return unlessAbsent(ref.name, this.getMetadata(resource, ref, options));
  }

  /**
   * Like {@link findMetadata}, and only the short fields are kept, as {@link listPage} keeps them of a list.
   * @throws {ApiError | TransportError}; {DoubtfulAnswer} where the answer is not this object.
   */
  async findListed(resource: Resource, ref: ObjectRef, options: CallOptions = {}): Promise<ListedObject | undefined> {
    const path = objectPath(resource, ref);
    const request = { method: "GET", path, accept: ACCEPT_METADATA, signal: options.signal } as const;
    const read = (body: Buffer): ListedObject => listedIn(body, { name: ref.name, path });
    return (await unlessAbsent(ref.name, this.transport.readBytes(request, MAX_OBJECT_BYTES, read)))?.body;
  }

  /**
   * Lists one page of metadata, over all namespaces. Without a continue token the list is consistent and current
   * (resourceVersion unset).
   * @throws {ApiError | TransportError}; {DoubtfulAnswer} where the answer is no list.
   */
  async listMetadata(resource: Resource, options: ListOptions = {}): Promise<PartialObjectMetadataList> {
    const path = collectionPath(resource);
    const { body } = await this.transport.request<PartialObjectMetadataList>({
      method: "GET",
      path,
      query: { labelSelector: options.labelSelector, limit: options.limit, continue: options.continueToken },
      accept: ACCEPT_METADATA_LIST,
      signal: options.signal,
    });
    return { ...body, items: itemsOf(body, path) };
  }

  /**
   * Like {@link listMetadata}, and reads the page as it arrives: memory holds one object of it at a time, and of each
   * only the short fields are kept.
   * @throws {ApiError | TransportError}
   */
  async listPage(resource: Resource, options: ListPageOptions = {}): Promise<ListedPage> {
    const { fieldVersions, labelSelector, limit, continueToken, signal } = options;
    const query = { labelSelector, limit, continue: continueToken };
    const path = collectionPath(resource);
    const request = { method: "GET", path, query, accept: ACCEPT_METADATA_LIST, signal } as const;
    return (await this.transport.read(request, (body) => readListedPage(body, { fieldVersions }))).body;
  }

  /**
   * Lists whole objects on one page; only for resources of which there are few.
   * @throws {ApiError | TransportError}; {DoubtfulAnswer} where the answer is no list.
   */
  async list<T>(
    resource: Resource,
    options: CallOptions & { readonly namespace?: string; readonly labelSelector?: string } = {},
  ): Promise<readonly T[]> {
    const { namespace, labelSelector, signal } = options;
    const path = collectionPath(resource, namespace);
    const { body } = await this.transport.request<ListAnswer<T>>({
      method: "GET",
      path,
      query: { labelSelector },
      signal,
    });
    return allItemsOf(body, path);
  }

  /**
   * Creates an object.
   * @throws {ApiError | TransportError}; {DoubtfulAnswer} where the answer is not this object: it may have been created.
   */
  async create<T>(resource: Resource, object: NewObject, options: WriteOptions = {}): Promise<T> {
    const { name, namespace } = object.metadata;
    const path = collectionPath(resource, namespace);
    const response = await this.transport.request<T>({
      method: "POST",
      path,
      query: writeQuery(options),
      body: object,
      signal: options.signal,
    });
    return writtenIn(response.body, { verb: "create", path, name, dryRun: options.dryRun });
  }

  /**
   * Patches an object; `patch.type` is a content type such as {@link MERGE_PATCH}.
   * @throws {ApiError | TransportError}; {DoubtfulAnswer} where the answer is not this object: it may have been written.
   */
  async patch<T>(
    resource: Resource,
    ref: ObjectRef,
    patch: { readonly type: string; readonly body: unknown },
    options: WriteOptions = {},
  ): Promise<T> {
    const subresource = options.subresource === undefined ? "" : `/${options.subresource}`;
    const path = objectPath(resource, ref) + subresource;
    const response = await this.transport.request<T>({
      method: "PATCH",
      path,
      query: writeQuery(options),
      body: patch.body,
      contentType: patch.type,
      ...(options.accept === undefined ? {} : { accept: options.accept }),
      signal: options.signal,
      timeoutMs: options.timeoutMs,
    });
    return writtenIn(response.body, { verb: "patch", path, name: ref.name, dryRun: options.dryRun });
  }

  /**
   * Deletes an object; one that does not exist counts as deleted, unless it `mustExist`.
   * @throws {ApiError | TransportError} Conflict where it is not the object with this uid and resourceVersion; {DoubtfulAnswer}
   *   where the answer does not say that it is deleted.
   */
  async delete(
    resource: Resource,
    ref: ObjectRef,
    options: CallOptions & {
      readonly preconditions?: { readonly uid?: string; readonly resourceVersion?: string };
      readonly mustExist?: boolean;
    } = {},
  ): Promise<void> {
    const { mustExist = false, preconditions, signal } = options;
    const path = objectPath(resource, ref);
    try {
      const { body } = await this.transport.request({
        method: "DELETE",
        path,
        body: { apiVersion: "v1", kind: "DeleteOptions", ...(preconditions === undefined ? {} : { preconditions }) },
        signal,
      });
      assertDeleted(body, { name: ref.name, path });
    } catch (error) {
      if (mustExist || !isAbsent(error, ref.name)) {
        throw error;
      }
    }
  }
}

/** Whether a precondition failed, or the object exists already; a webhook that says so proves nothing. */
export function isConflict(error: unknown): error is ApiError {
  return error instanceof ApiError && error.status === 409 && !isAdmissionDenial(error);
}

/** What a read of one object gives; `undefined` where the object does not exist, see {@link isAbsent}. */
async function unlessAbsent<T>(name: string, reading: Promise<T>): Promise<T | undefined> {
  try {
    return await reading;
  } catch (error) {
    if (isAbsent(error, name)) {
      return undefined;
    }
    throw error;
  }
}

function writeQuery({ fieldManager, dryRun, force }: WriteOptions): Record<string, string | undefined> {
  return {
    fieldManager,
    dryRun: dryRun === true ? "All" : undefined,
    force: force === true ? "true" : undefined,
  };
}
