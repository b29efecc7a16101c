import type { CallOptions } from "./call-options.ts";
import { preferredVersions, resourcesOf } from "./discovery.ts";
import { ApiError, DoubtfulAnswer } from "./errors.ts";
import { isAdmissionDenial } from "./failure.ts";
import { apiVersionOf, groupVersionPath, type Resource } from "./resources.ts";
import type { Transport } from "./transport.ts";

/** A group and a version of it; with a resource, that one alone. */
export type Served = Pick<Resource, "group" | "version"> & Partial<Resource>;

/**
 * Whether the API server says that exactly this object does not exist. Any other 404 says nothing about it: it comes from
 * an API server that does not serve the resource yet, from a proxy, or is about another object, such as a namespace.
 */
export function isAbsent(error: unknown, name: string): error is ApiError {
  return isNotFound(error) && error.reason === "NotFound" && error.answer?.details?.name === name;
}

/**
 * Whether an answer is a 404, whatever is not found: enough to read again, and no proof of anything. What is absent
 * is for {@link isAbsent} and {@link isUnserved} to say.
 */
export function isNotFound(error: unknown): error is ApiError {
  return error instanceof ApiError && error.status === 404 && !isAdmissionDenial(error);
}

/** Whether the API server says that the namespace of an object does not exist. */
export function isNamespaceMissing(error: unknown): error is ApiError {
  return isNotFound(error) && error.reason === "NotFound" && error.answer?.details?.kind === "namespaces";
}

/**
 * Whether a request failed because the API server does not serve the resource, or its version or group. An API server
 * answers that with a plain "404 page not found", and so may a proxy. So the proof is what no proxy says by accident: the
 * API server's own list of groups, or of the resources of a version, that names others and not this one.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/server/mux/pathrecorder.go
 * @returns `false` for any other error than a 404
 * @throws {DoubtfulAnswer} for a 404 that these lists contradict, or that they do not confirm; what their requests end in.
 */
export async function isUnserved(
  transport: Transport,
  served: Served,
  error: unknown,
  options: CallOptions = {},
): Promise<boolean> {
  if (!isNotFound(error)) {
    return false;
  }
  if (!(await isServed(transport, served, options))) {
    return true;
  }
  const { group, resource, version } = served;
  const what = resource === undefined ? apiVersionOf(group, version) : `${resource} of ${apiVersionOf(group, version)}`;
  throw new DoubtfulAnswer(`${error.message}, but it lists ${what}`, error);
}

/**
 * Whether an API server lists a resource in a version; without a resource, whether it lists the version.
 * @throws {DoubtfulAnswer} where the answers are no such lists; {ApiError | TransportError}
 */
export async function isServed(transport: Transport, served: Served, options: CallOptions = {}): Promise<boolean> {
  const { group, resource, version } = served;
  const groups = await preferredVersions(transport, options);
  if (groups.find(({ group: name }) => name === group)?.versions.includes(version) !== true) {
    return false;
  }
  return resource === undefined || (await isListed(transport, { group, resource, version }, options));
}

async function isListed(transport: Transport, wanted: Resource, options: CallOptions): Promise<boolean> {
  try {
    const listed = await resourcesOf(transport, wanted, options);
    if (listed.length > 0) {
      return listed.some(({ name }) => name === wanted.resource);
    }
    // A version that is listed and has no resource is one whose CRDs come or go at this moment.
    const text = `Cannot tell whether ${transport.server} serves ${wanted.resource}`;
    throw new DoubtfulAnswer(`${text}: it lists no resource of ${apiVersionOf(wanted.group, wanted.version)}`);
  } catch (error) {
    if (isNotFound(error)) {
      const path = groupVersionPath(wanted.group, wanted.version);
      throw new DoubtfulAnswer(`${error.message}, but /apis lists ${path}`, error);
    }
    throw error;
  }
}
