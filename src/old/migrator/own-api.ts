import { type ApiService, apiServiceNameOf, isAggregated } from "../../api/api-service.ts";
import { type CustomResourceDefinition, servedVersionsOf } from "../../api/crd.ts";
import { KsvmError } from "../../errors.ts";
import { listNamed } from "../kube/list-named.ts";
import { API_SERVICES, type Resource } from "../kube/resources.ts";
import { resourceNameOf } from "../../api/migration.ts";
import type { Access } from "../kube/access.ts";
import type { CallContext } from "../retry/call-context.ts";
import { mapInFlight } from "../retry/map-in-flight.ts";

/** To see whether the API server serves a CRD itself. The versions are known once the CRD was read. */
export const SEE_API_SERVICES: Access = { verb: "list", resource: API_SERVICES };

/** APIServices that are looked at together. */
const LOOKS_IN_FLIGHT = 8;

/**
 * Makes sure that the API servers serve every version of a CRD themselves. An APIService may hand the group and version to
 * an aggregated API server, which shows the same storageVersionHash and objects of its own: then the objects of the CRD are in etcd,
 * and no list shows them.
 *
 * @returns the APIServices as they are: the same text later means that none was changed in between
 * @throws {KsvmError} VersionNotServed, naming the APIService.
 */
export async function ownApiOf(context: CallContext, crd: CustomResourceDefinition): Promise<string> {
  const ownIn = async (version: string): Promise<string> => {
    const [name, object] = await apiServiceOf(context, crd.spec.group, version);
    if (isAggregated(object)) {
      throw new KsvmError(
        "VersionNotServed",
        `Cannot migrate "${crd.metadata.name}": APIService "${name}" hands ${crd.spec.group}/${version} to another API ` +
          "server, so the objects that etcd has of the CRD cannot be listed; nothing was pruned",
      );
    }
    return stateOf(name, object);
  };
  const states = await mapInFlight(servedVersionsOf(crd), ownIn, { most: LOOKS_IN_FLIGHT, signal: context.signal });
  return states.join(" ");
}

/**
 * Makes sure that the API servers, whose encryption is looked at, store a built-in resource themselves.
 * @returns as {@link ownApiOf}
 * @throws {KsvmError} AggregatedApi, naming the APIService.
 */
export async function ownStorageOf(context: CallContext, resource: Resource): Promise<string> {
  const { group, version } = resource;
  const [name, object] = await apiServiceOf(context, group, version);
  if (isAggregated(object)) {
    throw new KsvmError(
      "AggregatedApi",
      `Cannot tell which key "${resourceNameOf(resource)}" has: APIService "${name}" hands it to an aggregated API server, which ` +
        "stores it by itself and encrypts it by a configuration of its own; nothing was written; rotate the key there as its documentation says",
    );
  }
  return stateOf(name, object);
}

async function apiServiceOf(
  { client, retrier, signal }: CallContext,
  group: string,
  version: string,
): Promise<readonly [name: string, found: ApiService | undefined]> {
  const name = apiServiceNameOf(group, version);
  const find = () => listNamed<ApiService>(client.transport, API_SERVICES, { name }, { signal });
  return [name, (await retrier.run(find, signal)).object];
}

function stateOf(name: string, found: ApiService | undefined): string {
  return `${name}=${found?.metadata.uid ?? ""}/${found?.metadata.resourceVersion ?? ""}`;
}
