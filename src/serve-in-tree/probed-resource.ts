import { resourceNameOf } from "../api/migration.ts";
import type { PartialObjectMetadataList } from "../api/meta.ts";
import { KsvmError } from "../errors.ts";
import { resourcesOf } from "../kube/discovery.ts";
import { ACCEPT_METADATA_LIST, collectionPath, type Resource } from "../kube/resources.ts";
import { findCrd } from "../resources/read-crd.ts";
import { crdResourceOf } from "../resources/request-resource.ts";
import { findResource } from "../resources/served-resource.ts";
import type { CallContext } from "../retry/call-context.ts";

/** As upstream: no namespace has this name, so that the list is empty, and none of its objects is decoded. */
const NO_NAMESPACE = "@fake:svm_ns!";
const WELL_FORMED = /^[1-9][0-9]*$/;

/** What a migration is of. */
export interface WantedResource {
  readonly resource: Resource;
  /** Whether a CRD defines it. */
  readonly isCustom: boolean;
}

/**
 * Finds what a migration is of.
 * @param name `plural.group`
 * @throws {KsvmError} ResourceNotFound where discovery does not list it; ResourceNotMigratable where it cannot be listed and patched.
 */
export async function wantedResource({ client, retrier, signal }: CallContext, name: string): Promise<WantedResource> {
  const crd = await retrier.run(() => findCrd(client, name, { signal }), signal);
  const found = await retrier.run(() => findResource(client, name, { signal }), signal);
  return { resource: crd === undefined ? found : crdResourceOf(crd), isCustom: crd !== undefined };
}

/**
 * The resourceVersion that a resource has now.
 * @throws {KsvmError} ResourceNotMigratable where it is none that can be compared; {ApiError | TransportError}.
 */
export async function latestVersionOf(context: CallContext, resource: Resource): Promise<string> {
  const { client, retrier, signal } = context;
  const resources = await retrier.run(() => resourcesOf(client.transport, resource, { signal }), signal);
  const isNamespaced = resources.find(({ name }) => name === resource.resource)?.namespaced === true;
  const path = collectionPath(resource, isNamespaced ? NO_NAMESPACE : undefined);
  const request = { method: "GET", path, query: { limit: 1 }, accept: ACCEPT_METADATA_LIST, signal } as const;
  const { body } = await retrier.run(() => client.transport.request<PartialObjectMetadataList>(request), signal);
  const { resourceVersion } = body.metadata;
  if (!WELL_FORMED.test(resourceVersion)) {
    const text = `latest resourceVersion for ${resourceNameOf(resource)} is not valid`;
    throw new KsvmError("ResourceNotMigratable", text);
  }
  return resourceVersion;
}
