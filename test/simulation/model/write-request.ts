import { badRequest, forbidden, PathNotServed, type Refusal } from "./answers.ts";
import type { Admitted } from "./admission.ts";
import type { ModelObject } from "./model-object.ts";
import type { ServedKind } from "./served-kinds.ts";
import { viewOf } from "./stored-objects.ts";
import type { EtcdEntry } from "./timeline.ts";

/** A request that writes, bound to a handler. */
export interface Write {
  readonly kind: ServedKind;
  readonly namespace: string | undefined;
  readonly name: string;
  readonly subresource: string | undefined;
  readonly isDryRun: boolean;
  readonly user: string;
  /** Of the query. */
  readonly fieldManager: string | undefined;
  /** The same, or what the client calls itself. */
  readonly manager: string;
}

/** What was written, in the version of the request. */
export interface Written {
  readonly object: ModelObject;
  readonly wasCreated: boolean;
}

/**
 * Makes what is to be of what is there; `undefined` where nothing is. With its managedFields.
 * @param problem why its managedFields cannot be kept, see {@link managersProblem}
 */
export type Change = (current: ModelObject | undefined, problem?: Refusal) => ModelObject;

/** The key of an object in etcd. */
export function keyOf({ kind, name, namespace }: Pick<Write, "kind" | "name" | "namespace">): string {
  return namespace === undefined ? `${kind.prefix}${name}` : `${kind.prefix}${namespace}/${name}`;
}

/** What was written, as it would be read: where no webhook converts, it is the same object that every read gets. */
export function answered(kind: ServedKind, written: EtcdEntry, object: ModelObject): ModelObject {
  const isWebhooks = kind.crd?.facts.conversionUrl !== undefined && written.object.apiVersion !== kind.apiVersion;
  if (!isWebhooks) return viewOf(written, kind);
  return { ...object, metadata: { ...object.metadata, resourceVersion: String(written.modRevision) } };
}

/** @throws {Refusal} 403 where the CRD is being deleted */
export function assertNotTerminating(kind: ServedKind, name: string): void {
  if (kind.crd?.facts.isTerminating !== true) return;
  throw forbidden(kind, name, "create not allowed while custom resource definition is terminating");
}

/** What admission is asked about a write. */
export function admittedOf(
  { fieldManager, isDryRun, kind, name, namespace, subresource, user }: Write,
  operation: Admitted["operation"],
  { object, oldObject }: Pick<Admitted, "object" | "oldObject">,
): Admitted {
  return { kind, operation, subresource, name, namespace, object, oldObject, isDryRun, user, fieldManager };
}

/** The JSON of a body. @throws {Refusal} 400 */
export function parsedBody(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch (error) {
    throw badRequest(String(error));
  }
}

/** The name that a path has to have. @throws {PathNotServed} */
export function named(name: string | undefined): string {
  if (name === undefined || name === "") throw new PathNotServed();
  return name;
}
