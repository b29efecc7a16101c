import type { CustomResourceDefinition } from "../../../api/crd.ts";
import type { ObjectIdentity } from "../../kube/listed-object.ts";

/**
 * Why no request can reach an object that a list shows: an earlier CRD of this name had another scope, and left it in etcd. That takes
 * one whose finalizer was removed by hand, since the API server deletes the objects of a CRD before that. `undefined` where an object
 * is where those of its CRD are.
 * @param scope of the CRD as it is now; `undefined` for a resource that has none, whose scope never changes
 */
export function otherScopeOf(
  scope: CustomResourceDefinition["spec"]["scope"] | undefined,
  { namespace }: Pick<ObjectIdentity, "namespace">,
): string | undefined {
  const found = namespace === undefined ? "Cluster" : "Namespaced";
  if (scope === undefined || scope === found) {
    return undefined;
  }
  const [where, is] =
    namespace === undefined ? ["without a namespace", "namespaced"] : [`in namespace "${namespace}"`, "cluster-scoped"];
  return (
    `an earlier CRD left it ${where}, and the CRD is ${is} now, so that no request reaches it; ` +
    "delete its key from etcd, and look there for others: a list may hide those of an object with the same name"
  );
}
