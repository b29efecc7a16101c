import { type FreezeOwner, parseOwner } from "../../src/freeze/freeze.ts";
import { MIGRATING, OWNER } from "../../src/freeze/rule.ts";

interface Annotated {
  readonly metadata: { readonly annotations?: Readonly<Record<string, string>> | undefined };
}

/** Whether a CRD carries the annotation that freezes it. */
export function hasFreezeAnnotation({ metadata: { annotations } }: Annotated): boolean {
  return annotations?.[MIGRATING] !== undefined;
}

/** The annotation that says which run froze a CRD. */
export function ownerAnnotationOf({ metadata: { annotations } }: Annotated): string | undefined {
  return annotations?.[OWNER];
}

/** Which run a CRD names as the owner of its freeze. */
export function freezeOwnerOf({ metadata: { annotations } }: Annotated): FreezeOwner | undefined {
  return parseOwner(annotations?.[OWNER]);
}
