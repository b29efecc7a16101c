import { KsvmError, messageOf } from "../../../errors.ts";
import { isUnserved } from "../../kube/absent.ts";
import type { CallOptions } from "../../kube/call-options.ts";
import type { Resource } from "../../kube/resources.ts";
import type { Transport } from "../../kube/transport.ts";

/**
 * Ends a run whose version is not served any more. A 404 to a list does not show that by itself: it may come from a load balancer,
 * or from an API server that is starting. So the API server's own lists have to say so, too.
 * @param error that a list of the resource failed with. Nothing is done about any other than a 404.
 * @throws {KsvmError} VersionNotServed; {DoubtfulAnswer}, which is worth another try, where the API server lists the version; what the
 *   requests end in, see {@link isUnserved}.
 */
export async function throwIfUnserved(
  transport: Transport,
  resource: Resource,
  error: unknown,
  options: CallOptions,
): Promise<void> {
  if (await isUnserved(transport, resource, error, options)) {
    const { group, version, resource: plural } = resource;
    const text = `Cannot continue with "${plural}.${group}": version "${version}" is no longer served: ${messageOf(error)}`;
    throw new KsvmError("VersionNotServed", text, { cause: error });
  }
}
