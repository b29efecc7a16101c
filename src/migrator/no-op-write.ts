import type { PartialObjectMetadata } from "../api/meta.ts";
import { REWRITE_FIELD_MANAGER } from "../api/names.ts";
import type { ObjectIdentity } from "../kube/listed-object.ts";
import { ACCEPT_METADATA, APPLY_PATCH, apiVersionOf, objectPath, type Resource } from "../kube/resources.ts";
import type { Transport } from "../kube/transport.ts";

/** How a no-op write is sent. */
export interface NoOpWriteOptions {
  /** @default a server-side apply that owns no field */
  readonly patchType?: string;
  /** @default false */
  readonly dryRun?: boolean;
  readonly signal: AbortSignal;
}

/**
 * Writes one object as it is, with its uid and resourceVersion as preconditions, so that it can neither create an object
 * nor undo somebody's write. The API server stores it anew exactly where it is stored in another encoding.
 * @throws {ApiError | TransportError}
 */
export async function noOpWrite(
  transport: Transport,
  resource: Resource & { readonly kind: string },
  object: ObjectIdentity,
  options: NoOpWriteOptions,
): Promise<PartialObjectMetadata> {
  const { name, namespace, uid, resourceVersion } = object;
  const scope = namespace === undefined ? {} : { namespace };
  const response = await transport.request<PartialObjectMetadata>({
    method: "PATCH",
    path: objectPath(resource, object),
    query: { fieldManager: REWRITE_FIELD_MANAGER, dryRun: options.dryRun === true ? "All" : undefined },
    body: {
      apiVersion: apiVersionOf(resource.group, resource.version),
      kind: resource.kind,
      metadata: { name, ...scope, uid, resourceVersion },
    },
    contentType: options.patchType ?? APPLY_PATCH,
    accept: ACCEPT_METADATA,
    signal: options.signal,
  });
  return response.body;
}
