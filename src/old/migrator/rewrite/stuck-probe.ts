import { type CustomResourceDefinition, servedVersionsOf } from "../../../api/crd.ts";
import type { ApiClient } from "../../kube/client.ts";
import { failureKindOf, isConversionRefusal } from "../../kube/failure.ts";
import { APPLY_PATCH, CRDS } from "../../kube/resources.ts";
import { listInAnyVersion, type VersionedResource } from "./list-in-any-version.ts";
import { noOpWrite } from "./no-op-write.ts";
import { crdResourceOf } from "../../../resources/request-resource.ts";
import type { StuckRequest } from "../../retry/start-again.ts";

/** A request for the resource itself. */
type ResourceRequest = Exclude<StuckRequest, { readonly kind: "lease" }>;

/** The resource that a run migrates, as it is served now. */
export interface ProbedResource extends VersionedResource {
  readonly kind: string;
}

/**
 * Repeats exactly what a run got stuck on: the page of the same size, or the write of the same object in the same way, as
 * a dry-run. Where it got stuck on neither, a small list and a write, which call the conversion webhook and the
 * admission webhooks.
 *
 * @param readResource reads it again each time: what repairs it may change what is served
 * @returns the failure where it still fails; any other outcome is for the next attempt to judge
 */
export async function probeStuckRequest(
  client: ApiClient,
  readResource: () => Promise<ProbedResource>,
  { stuckOn, signal }: { readonly stuckOn: ResourceRequest | undefined; readonly signal: AbortSignal },
): Promise<unknown> {
  try {
    await repeat(client, await readResource(), stuckOn, signal);
    return undefined;
  } catch (error) {
    signal.throwIfAborted();
    return failureKindOf(error) === "transient" || isConversionRefusal(error) ? error : undefined;
  }
}

/** Reads the CRD of a run and what is served by it. */
export async function probedCrd(client: ApiClient, name: string, signal: AbortSignal): Promise<ProbedResource> {
  return probedResourceOf(await client.get<CustomResourceDefinition>(CRDS, { name }, { signal }));
}

/** What a CRD serves: the version that a run requests, and the others. */
export function probedResourceOf(crd: CustomResourceDefinition): ProbedResource {
  const resource = crdResourceOf(crd);
  const otherVersions = servedVersionsOf(crd).filter((version) => version !== resource.version);
  return { resource, otherVersions, kind: crd.spec.names.kind };
}

async function repeat(
  client: ApiClient,
  probed: ProbedResource,
  stuckOn: ResourceRequest | undefined,
  signal: AbortSignal,
): Promise<void> {
  const target = { ...probed.resource, kind: probed.kind };
  if (stuckOn?.kind === "write") {
    const { object, patchType, subresource } = stuckOn;
    await noOpWrite(client.transport, target, object, { patchType, subresource, dryRun: true, signal });
    return;
  }
  const { limit = 1, continueToken } = stuckOn ?? {};
  const page = await listInAnyVersion(client, probed, { limit, continueToken, signal });
  const object = page.items[0];
  if (stuckOn === undefined && object !== undefined) {
    await noOpWrite(client.transport, target, object, { patchType: APPLY_PATCH, dryRun: true, signal });
  }
}
