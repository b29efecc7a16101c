import type { Json, LineRequest, ObjectKey } from "./line.ts";

const PATH =
  /^\/(?:api|apis\/(?<group>[^/]+))\/[^/]+(?:\/namespaces\/(?<namespace>[^/]+))?\/(?<resource>[^/]+)(?:\/(?<name>[^/]+))?(?:\/[^/]+)?$/;

/** The object that a request is about; of a create, the one that its body or its answer names. `undefined` where there is none. */
export function objectKeyOf({ body, method, path }: LineRequest, answer?: Json): ObjectKey | undefined {
  const { group = "", namespace, resource, name } = PATH.exec(path)?.groups ?? {};
  const { metadata } = (answer ?? body ?? {}) as { readonly metadata?: { readonly name?: string } };
  const found = name ?? (method === "POST" ? metadata?.name : undefined);
  return resource === undefined || found === undefined ? undefined : { group, resource, namespace, name: found };
}

/** Prefixes in etcd of resources that are not below their group. */
const PREFIXED = new Set([
  "clusterrolebindings",
  "clusterroles",
  "configmaps",
  "events",
  "leases",
  "mutatingwebhookconfigurations",
  "secrets",
  "validatingadmissionpolicies",
  "validatingadmissionpolicybindings",
  "validatingwebhookconfigurations",
  "volumeattributesclasses",
]);

/** Where etcd has an object. */
export function etcdKeyOf({ group, name, namespace, resource }: ObjectKey): string {
  const prefix = PREFIXED.has(resource) ? `/registry/${resource}` : `/registry/${group}/${resource}`;
  return [prefix, ...(namespace === undefined ? [] : [namespace]), name].join("/");
}

/** In which version an object is stored. A CRD is stored in v1beta1, and no code of ksvm looks at that. */
export function encodingOf({ group }: ObjectKey, apiVersion: string): string {
  return group === "apiextensions.k8s.io" ? "" : apiVersion;
}
