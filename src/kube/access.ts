import type { CallOptions } from "./call-options.ts";
import type { Resource } from "./resources.ts";
import type { Transport } from "./transport.ts";

/** One thing that a user may or may not do. */
export interface Access {
  readonly verb: string;
  readonly resource: Pick<Resource, "group" | "resource">;
  readonly subresource?: string;
  /** All namespaces where it is missing. */
  readonly namespace?: string;
  readonly name?: string;
}

/** `patch customresourcedefinitions.apiextensions.k8s.io/status`, as RBAC errors spell it. */
export function describeAccess({ verb, resource, subresource, namespace }: Access): string {
  const group = resource.group === "" ? "" : `.${resource.group}`;
  const path = subresource === undefined ? "" : `/${subresource}`;
  const scope = namespace === undefined ? "" : ` in namespace "${namespace}"`;
  return `${verb} ${resource.resource}${group}${path}${scope}`;
}

/**
 * Whether the API server would let this user do this (SelfSubjectAccessReview, which every authenticated user may
 * create).
 * @throws {ApiError | TransportError}
 */
export async function isAllowed(transport: Transport, access: Access, options: CallOptions = {}): Promise<boolean> {
  const { verb, resource, subresource, namespace, name } = access;
  const { body } = await transport.request<{ status?: { allowed?: boolean } }>({
    method: "POST",
    path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    body: {
      apiVersion: "authorization.k8s.io/v1",
      kind: "SelfSubjectAccessReview",
      spec: {
        resourceAttributes: { verb, group: resource.group, resource: resource.resource, subresource, namespace, name },
      },
    },
    signal: options.signal,
  });
  return body.status?.allowed === true;
}
