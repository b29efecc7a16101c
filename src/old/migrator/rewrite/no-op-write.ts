import { REWRITE_FIELD_MANAGER } from "../../../api/names.ts";
import { fieldSpans } from "../../json/json-fields.ts";
import { skipSpace } from "../../json/json-scan.ts";
import { DoubtfulAnswer } from "../../kube/errors.ts";
import { type ListedObject, listedObjectOf, MAX_OBJECT_BYTES, type ObjectIdentity } from "../../kube/listed-object.ts";
import { ACCEPT_METADATA, APPLY_PATCH, apiVersionOf, objectPath, type Resource } from "../../kube/resources.ts";
import type { ApiRequest } from "../../kube/api-request.ts";
import type { Transport } from "../../kube/transport.ts";

/** The kind that {@link ACCEPT_METADATA} asks for. */
const PARTIAL = '"PartialObjectMetadata"';

/** How a no-op write is sent. */
export interface NoOpWriteOptions {
  /** @default a server-side apply that owns no field */
  readonly patchType?: string;
  /** Writes through this subresource in place of the object itself. @default the object itself */
  readonly subresource?: "status" | undefined;
  /** @default false */
  readonly dryRun?: boolean;
  readonly signal: AbortSignal;
}

/**
 * Writes one object as it is, with its uid and resourceVersion as preconditions, so that it can neither create an object
 * nor undo another client's write. The API server stores it again exactly where it is stored in another encoding.
 *
 * Through the status subresource an API server looks at the resourceVersion alone: there the uid of the answer says which
 * object was written. Admission can change the status there, which no metadata shows: so the digest of the answer covers it.
 * @returns the object as it is now stored
 * @throws {ApiError | TransportError}; {DoubtfulAnswer} where the answer is not an object of an API server.
 */
export async function noOpWrite(
  transport: Transport,
  resource: Resource & { readonly kind: string },
  object: ObjectIdentity,
  options: NoOpWriteOptions,
): Promise<ListedObject> {
  const { name, namespace, uid, resourceVersion } = object;
  const { subresource } = options;
  const path = objectPath(resource, object);
  const scope = namespace === undefined ? {} : { namespace };
  const request: ApiRequest = {
    method: "PATCH",
    path: subresource === undefined ? path : `${path}/${subresource}`,
    query: { fieldManager: REWRITE_FIELD_MANAGER, dryRun: options.dryRun === true ? "All" : undefined },
    body: {
      apiVersion: apiVersionOf(resource.group, resource.version),
      kind: resource.kind,
      metadata: { name, ...scope, uid, resourceVersion },
    },
    contentType: options.patchType ?? APPLY_PATCH,
    ...(subresource === undefined ? { accept: ACCEPT_METADATA } : {}),
    signal: options.signal,
  };
  const read = (body: Buffer): ListedObject => {
    if (!isOfApiServer(body)) throw new DoubtfulAnswer(`Cannot patch ${path}: the answer is not this object`);
    return listedObjectOf(body, { status: subresource !== undefined });
  };
  return (await transport.readBytes(request, MAX_OBJECT_BYTES, read)).body;
}

/**
 * Whether a body has what no request has. The request names the object and its resourceVersion, so what a proxy sends back of it would be
 * taken for the answer to a write that had nothing to do.
 */
function isOfApiServer(body: Buffer): boolean {
  const parts = fieldSpans(body, skipSpace(body, 0), ["kind", "metadata"]);
  const [kind, metadata] = [parts?.get("kind"), parts?.get("metadata")];
  if (kind !== undefined && body.toString("utf8", kind.start, kind.end) === PARTIAL) return true;
  // The whole object, as through a subresource.
  return metadata !== undefined && fieldSpans(body, metadata.start, ["creationTimestamp"])?.size === 1;
}
