import { failureKindOf } from "../../kube/failure.ts";
import type { ListedObject } from "../../kube/listed-object.ts";
import { APPLY_PATCH } from "../../kube/resources.ts";
import { noOpWrite } from "./no-op-write.ts";
import type { RewriteContext } from "./rewrite-context.ts";

/**
 * Whether a no-op apply changes nothing that a user sees of an object without managedFields: the API server gives the object an entry that
 * owns every field, where it has any. Then the apply is better than a merge patch: on an object that was deleted it meets a conflict, as
 * another migrator's does, and the merge patch a 404, which says nothing by itself.
 * @throws {ApiError | TransportError} which say nothing of that
 */
export async function isApplyInvisible(
  { kind, pacer, resource, signal, transport, write = noOpWrite }: RewriteContext,
  object: ListedObject,
): Promise<boolean> {
  const options = { patchType: APPLY_PATCH, dryRun: true, signal };
  try {
    const applied = await pacer.observe(() => write(transport, { ...resource, kind }, object, options));
    // That of another object says nothing of this one.
    const isOfObject = applied.uid === object.uid;
    return isOfObject && applied.digest === object.digest && applied.generation === object.generation;
  } catch (error) {
    // A webhook may refuse dry runs alone, and how the write fares says more of what is rejected.
    if (failureKindOf(error) === "rejected") {
      return false;
    }
    throw error;
  }
}
