import { isAggregated, type ApiService } from "../api/api-service.ts";
import { type CustomResourceDefinition, servedVersionsOf } from "../api/crd.ts";
import { KsvmError } from "../errors.ts";
import { listNamed } from "../kube/list-named.ts";
import { API_SERVICES } from "../kube/resources.ts";
import type { Access } from "../kube/access.ts";
import type { CallContext } from "../retry/call-context.ts";

/** To see whether the API server serves a CRD itself. The versions are known once the CRD was read. */
export const SEE_API_SERVICES: Access = { verb: "list", resource: API_SERVICES };

/**
 * Makes sure that the API servers serve every version of a CRD themselves. An APIService may hand the group and version to
 * an aggregated API server, which shows the same storageVersionHash and objects of its own: then the objects of the CRD are in etcd,
 * and no list shows them.
 *
 * @returns the APIServices as they are: the same text later means that none was changed in between
 * @throws {KsvmError} VersionNotServed, naming the APIService.
 */
export async function ownApiOf(
  { client, retrier, signal }: CallContext,
  crd: CustomResourceDefinition,
): Promise<string> {
  const states: string[] = [];
  for (const version of servedVersionsOf(crd)) {
    const name = `${version}.${crd.spec.group}`;
    const find = () => listNamed<ApiService>(client.transport, API_SERVICES, { name }, { signal });
    const { object } = await retrier.run(find, signal);
    if (isAggregated(object)) {
      throw new KsvmError(
        "VersionNotServed",
        `Cannot migrate "${crd.metadata.name}": APIService "${name}" hands ${crd.spec.group}/${version} to another API ` +
          "server, so the objects that etcd has of the CRD cannot be listed; nothing was pruned",
      );
    }
    states.push(`${name}=${object?.metadata.uid ?? ""}/${object?.metadata.resourceVersion ?? ""}`);
  }
  return states.join(" ");
}
