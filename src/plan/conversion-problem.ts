import { messageOf } from "../errors.ts";
import type { CallOptions } from "../old/kube/call-options.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { ApiError } from "../old/kube/errors.ts";
import { failedWebhookOf } from "../old/kube/failure.ts";
import type { Resource } from "../old/kube/resources.ts";
import type { PlanEntry } from "./plan.ts";

type Converted = Pick<PlanEntry, "action" | "conversion" | "request" | "servedVersions">;

/** Whether an API server failed to call the conversion webhook of this resource. */
export function isWebhookDown(error: unknown, { conversion }: Pick<PlanEntry, "conversion">): error is ApiError {
  return conversion !== undefined && error instanceof ApiError && failedWebhookOf(error) !== undefined;
}

/**
 * Why an API server cannot call the conversion webhook that a migration needs; `undefined` where it can, or where
 * nothing shows that it cannot. The first object is read in every served version: it is stored in one of them, so that
 * reading the others takes the webhook. A list would not do, since the watch cache has what was converted while the
 * webhook was up.
 * @throws {ApiError} any other failure.
 */
export async function conversionProblemOf(
  client: ApiClient,
  { action, conversion, request, servedVersions }: Converted,
  options: CallOptions = {},
): Promise<string | undefined> {
  if (conversion === undefined || request === undefined || action === "none") {
    return undefined;
  }
  try {
    await readFirstObject(client, { request, servedVersions }, options);
    return undefined;
  } catch (error) {
    // The user may list objects, and not get them.
    const isForbidden = error instanceof ApiError && error.status === 403;
    if (isForbidden || isWebhookDown(error, { conversion })) {
      return isForbidden ? undefined : messageOf(error.said);
    }
    throw error;
  }
}

async function readFirstObject(
  client: ApiClient,
  { request, servedVersions }: { readonly request: Resource; readonly servedVersions: readonly string[] },
  options: CallOptions,
): Promise<void> {
  const [first] = (await client.listMetadata(request, { limit: 1, ...options })).items;
  if (first !== undefined) {
    for (const version of servedVersions) {
      await client.findMetadata({ ...request, version }, first.metadata, options);
    }
  }
}
