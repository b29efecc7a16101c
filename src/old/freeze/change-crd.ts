import type { CustomResourceDefinition } from "../../api/crd.ts";
import type { JsonObject } from "../../api/json-fields.ts";
import { isConflict } from "../kube/client.ts";
import { CRDS, MERGE_PATCH } from "../kube/resources.ts";
import { readCrd } from "../../resources/read-crd.ts";
import type { CallContext } from "../retry/call-context.ts";
import { CONFLICT_PACE, MAX_CONFLICTS } from "./freeze.ts";

/** What is written to a CRD beside its metadata, as a merge patch: a list is replaced as a whole. */
export type CrdChange = Readonly<Partial<Record<"spec" | "status", JsonObject>>>;

/**
 * Changes the spec of a CRD, or with `subresource` its status, with the uid and resourceVersion that `change` has decided on as
 * preconditions. If another client writes it in between, `change` decides again; where it returns `undefined`, nothing is written.
 * @returns whether anything was written
 * @throws {ApiError} NotFound where the CRD does not exist; Conflict where others write it again and again; what `change` throws.
 */
export async function changeCrd(
  context: CallContext,
  name: string,
  change: (crd: CustomResourceDefinition) => CrdChange | undefined,
  options: { readonly subresource?: "status"; readonly fieldManager?: string } = {},
): Promise<boolean> {
  const { client, retrier, signal } = context;
  const pace = retrier.pace(CONFLICT_PACE);
  for (let conflicts = 0; ; conflicts++) {
    await pace.turn(signal);
    const crd = await readCrd(context, name);
    const changed = change(crd);
    if (changed === undefined) {
      return false;
    }
    const { uid, resourceVersion } = crd.metadata;
    const patch = { type: MERGE_PATCH, body: { metadata: { uid, resourceVersion }, ...changed } };
    try {
      await retrier.run(() => client.patch(CRDS, { name }, patch, { ...options, signal }), signal);
      return true;
    } catch (error) {
      if (!isConflict(error) || conflicts >= MAX_CONFLICTS) {
        throw error;
      }
    }
  }
}
