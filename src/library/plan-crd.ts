import { KsvmError } from "../errors.ts";
import { type CountedEntry, planNamed } from "../plan/inventory.ts";
import { type ClusterOptions, withCluster } from "./cluster.ts";

/**
 * Tells what a migration of one CRD would do, as `ksvm plan` does. It sends reads only.
 *
 * @param name `plural.group`
 * @throws {KsvmError} ResourceNotFound where it is no CRD of the cluster; where the cluster cannot be reached, see
 *   docs/errors.md. {ApiError} where CRDs may not be read.
 */
export async function planCrd(name: string, options: ClusterOptions): Promise<CountedEntry> {
  return await withCluster(options, async (client, signal) => {
    const [entry] = await planNamed(client, [name], { crdsOnly: true, signal });
    if (entry === undefined) {
      throw new KsvmError("ResourceNotFound", `Cannot plan for "${name}": it is no custom resource`);
    }
    return entry;
  });
}
