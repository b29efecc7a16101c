import { plainError, Refusal } from "./answers.ts";
import { convert, isConvertedByWebhook } from "./conversion.ts";
import type { ModelObject } from "./model-object.ts";
import { isDecodable, type ServedKind } from "./served-kinds.ts";
import type { ServerContext } from "./server-context.ts";

/**
 * Why managedFields of an object cannot be kept: an entry names a version that the CRD no longer has, or one that the
 * conversion webhook does not convert to now. An apply then fails, and any other write takes all managedFields off.
 *
 * https://github.com/kubernetes/kubernetes/issues/111937
 * https://github.com/kubernetes/kubernetes/issues/136919
 */
export async function managersProblem(
  context: ServerContext,
  kind: ServedKind,
  object: ModelObject,
): Promise<Refusal | undefined> {
  try {
    for (const apiVersion of new Set(object.metadata.managedFields?.map((entry) => entry.apiVersion))) {
      if (apiVersion === kind.apiVersion) continue;
      if (!isDecodable(kind, apiVersion)) {
        return plainError(`request to convert CR to an invalid group/version: ${apiVersion}`);
      }
      if (isConvertedByWebhook(kind)) await convert(context, kind, object, apiVersion);
    }
    return undefined;
  } catch (error) {
    if (error instanceof Refusal) return error;
    throw error;
  }
}

/** Whether there can be such a problem: any other write need not wait for an answer. */
export function isInOtherVersions({ apiVersion, crd }: ServedKind, { metadata }: ModelObject): boolean {
  return crd !== undefined && metadata.managedFields?.some((entry) => entry.apiVersion !== apiVersion) === true;
}
