import type { X509Certificate } from "node:crypto";
import type { EnsureOptions } from "./ensure-options.ts";
import { askReplicas, findReplicas } from "./replicas.ts";
import { isIssuedBy } from "./secret-contents.ts";

/**
 * The replicas that are known to serve a certificate of another CA than this one. For those that cannot be asked the dwell time stands.
 * @throws as `findReplicas()`
 */
export async function othersThan(
  ca: X509Certificate | undefined,
  { client, logger, servedBy, settings, signal }: EnsureOptions,
): Promise<readonly string[]> {
  const addresses = settings.replicaEndpoints ?? (await findReplicas(client, settings, signal));
  if (addresses === undefined || ca === undefined) {
    logger.warn("Cannot list the replicas of the webhook, so only the dwell time stands for them");
    return [];
  }
  const isCurrent = (certificate: X509Certificate): boolean => isIssuedBy(certificate, ca);
  const { others, unasked } = await askReplicas(addresses, { names: settings, isCurrent, servedBy, signal });
  if (unasked.length > 0) {
    logger.warn({ unasked }, "Cannot ask some replicas of the webhook, so only the dwell time stands for them");
  }
  return others;
}
