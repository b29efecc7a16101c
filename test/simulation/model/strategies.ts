import { invalid } from "./answers.ts";
import { assertBuiltIn, builtInDefaulted } from "./built-in-strategy.ts";
import { crdDefaulted, crdPrepared, isCrdKind } from "./crd-strategy.ts";
import type { ModelObject } from "./model-object.ts";
import { cleaned } from "./object-meta.ts";
import { defaulted, misfits, pruned } from "./schemas.ts";
import type { ServedKind } from "./served-kinds.ts";

/** An object as it is decoded: with its defaults, and without what its schema does not know. */
export function decoded(kind: ServedKind, sent: ModelObject): ModelObject {
  const object = cleaned(sent);
  if (kind.crd !== undefined) return defaulted(pruned(object, kind.schema), kind.schema);
  return isCrdKind(kind) ? crdDefaulted(object) : builtInDefaulted(kind, object);
}

/** What the strategy of a resource makes of an object that is to be written. @throws {Refusal} 422 */
export function prepared(
  kind: ServedKind,
  before: ModelObject | undefined,
  after: ModelObject,
  subresource: string | undefined,
): ModelObject {
  if (isCrdKind(kind)) return subresource === undefined ? crdPrepared(before, after) : after;
  if (kind.crd === undefined) {
    if (before === undefined) assertBuiltIn(kind, after);
    return after;
  }
  const causes = misfits(after, before, kind.schema);
  if (causes.length > 0) throw invalid(kind, after.metadata.name ?? "", causes);
  return after;
}
