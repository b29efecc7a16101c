import { systemClock } from "../clock.ts";
import { KsvmError } from "../errors.ts";
import type { CheckEntry } from "../plan/check-types.ts";
import { CHECK_PATIENCE, checkManifests } from "../plan/check-facts.ts";
import { readManifests } from "../plan/crd-manifests.ts";
import { Retrier } from "../retry/retrier.ts";
import { type ClusterOptions, withCluster } from "./cluster.ts";

/**
 * Tells whether a CRD can be applied to a cluster, and what to do before, as `ksvm check -f` does. It sends reads and dry runs
 * only.
 *
 * @param manifest one CRD, as an object or as YAML or JSON
 * @throws {KsvmError} ManifestInvalid where it is not exactly one CRD; RetryBudgetExceeded where the API server does not answer;
 *   Forbidden where CRDs may not be read; and where the cluster cannot be reached, see docs/errors.md.
 */
export async function checkCrd(manifest: string | object, options: ClusterOptions): Promise<CheckEntry> {
  const text = typeof manifest === "string" ? manifest : JSON.stringify(manifest);
  const { crds } = readManifests([{ source: "the manifest", text }]);
  const [crd, ...others] = crds;
  if (crd === undefined || others.length > 0) {
    throw new KsvmError("ManifestInvalid", `Cannot check the manifest: it holds ${crds.length} CRDs, one is expected`);
  }
  return await withCluster(options, async (client, signal) => {
    const retrier = new Retrier({ clock: systemClock, random: Math.random, ...CHECK_PATIENCE });
    const [entry] = await checkManifests({ client, retrier, signal }, [crd]);
    if (entry === undefined) {
      throw new KsvmError("Internal", "Cannot check the manifest: nothing was said about it");
    }
    return entry;
  });
}
