import type { CallOptions } from "./call-options.ts";
import { DoubtfulAnswer } from "./errors.ts";
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

/** Reading a path that belongs to no resource (a nonResourceURL of RBAC). */
export interface PathAccess {
  readonly verb: "get";
  readonly path: string;
}

/** `patch customresourcedefinitions.apiextensions.k8s.io/status`, as RBAC errors spell it. */
export function describeAccess(access: Access | PathAccess): string {
  if ("path" in access) {
    return `${access.verb} the nonResourceURL "${access.path}"`;
  }
  const { verb, resource, subresource, namespace } = access;
  const group = resource.group === "" ? "" : `.${resource.group}`;
  const path = subresource === undefined ? "" : `/${subresource}`;
  const scope = namespace === undefined ? "" : ` in namespace "${namespace}"`;
  return `${verb} ${resource.resource}${group}${path}${scope}`;
}

/**
 * Whether the API server would let this user do this (SelfSubjectAccessReview, which every authenticated user may
 * create).
 * @throws {ApiError | TransportError}; {DoubtfulAnswer} where the answer is none.
 */
export async function isAllowed(
  transport: Transport,
  access: Access | PathAccess,
  options: CallOptions = {},
): Promise<boolean> {
  const { body } = await transport.request<{ status?: { allowed?: boolean } }>({
    method: "POST",
    path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    body: {
      apiVersion: "authorization.k8s.io/v1",
      kind: "SelfSubjectAccessReview",
      spec: attributesOf(access),
    },
    signal: options.signal,
  });
  const allowed = body?.status?.allowed;
  if (typeof allowed !== "boolean") {
    throw new DoubtfulAnswer(
      `Cannot find out whether this user may ${describeAccess(access)}: the answer is no review`,
    );
  }
  return allowed;
}

function attributesOf(access: Access | PathAccess): object {
  if ("path" in access) {
    return { nonResourceAttributes: access };
  }
  const { verb, resource, subresource, namespace, name } = access;
  return {
    resourceAttributes: { verb, group: resource.group, resource: resource.resource, subresource, namespace, name },
  };
}
