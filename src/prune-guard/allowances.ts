import type { CustomResourceDefinition } from "../api/crd.ts";
import { ALLOW_PRUNE_ANNOTATION } from "../api/names.ts";
import { isPruneAllowanceSpent } from "../api/prune-allowance.ts";
import { updateCrd } from "../freeze/freeze.ts";
import { isAbsent } from "../kube/absent.ts";
import { projectedPages } from "../kube/list-projected.ts";
import { CRDS } from "../kube/resources.ts";
import { crdProjection } from "../resources/crd-projection.ts";
import type { CallContext } from "../retry/call-context.ts";

/** An annotation that allows a prune once. */
export interface ListedAllowance {
  readonly crd: string;
  readonly value: string;
  /** `spent` where it allows nothing more. */
  readonly state: "valid" | "spent";
}

const PAGE_SIZE = 100;
const FIELDS = crdProjection({
  name: "all",
  generation: "all",
  annotations: { fields: { [ALLOW_PRUNE_ANNOTATION]: "all" } },
});

/** The annotations of all CRDs that allow a prune. @throws {ApiError | TransportError} */
export async function listAllowances({ client, retrier, signal }: CallContext): Promise<readonly ListedAllowance[]> {
  const list = async (): Promise<readonly ListedAllowance[]> => {
    const all: ListedAllowance[] = [];
    const options = { limit: PAGE_SIZE, projection: FIELDS, signal };
    for await (const { items } of projectedPages(client.transport, CRDS, options)) {
      all.push(...(items as readonly CustomResourceDefinition[]).flatMap(allowanceOf));
    }
    return all;
  };
  return retrier.run(list, signal);
}

function allowanceOf(crd: CustomResourceDefinition): readonly ListedAllowance[] {
  const value = crd.metadata.annotations?.[ALLOW_PRUNE_ANNOTATION];
  return value === undefined
    ? []
    : [{ crd: crd.metadata.name, value, state: isPruneAllowanceSpent(crd) ? "spent" : "valid" }];
}

/**
 * Takes the annotation off a CRD whose versions have left, or whose generation is another one by now.
 * @returns whether it took it off
 * @throws {ApiError | TransportError}
 */
export async function removeSpentAllowance(context: CallContext, crdName: string): Promise<boolean> {
  let isSpent = false;
  try {
    await updateCrd(context, crdName, (crd) => {
      isSpent = isPruneAllowanceSpent(crd);
      return isSpent ? { [ALLOW_PRUNE_ANNOTATION]: null } : undefined;
    });
  } catch (error) {
    // The CRD was deleted, and its annotation with it.
    if (!isAbsent(error, crdName)) {
      throw error;
    }
    return false;
  }
  return isSpent;
}
