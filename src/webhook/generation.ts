import { ASKED_BY_ANNOTATION, GENERATION_ANNOTATION } from "../api/names.ts";
import type { KubeObject } from "../kube/client.ts";

/**
 * The generation of the webhook configuration and of the warning policy that this version ships and keeps. It goes up with every change
 * of them, so that replicas of two versions agree on which one is newer; a test pins what belongs to each generation. Versions
 * before the first one stamped nothing.
 */
const SHIPPED_GENERATION = 1;

/** The annotations of what this version ships. */
export const STAMP: Readonly<Record<string, string>> = { [GENERATION_ANNOTATION]: String(SHIPPED_GENERATION) };

/** As any client may write it: no sign, no leading zero, and few digits. */
const GENERATION = /^[1-9]\d{0,8}$/;

/** The generation that an object is stamped with; 0 where it has no stamp, or one that is no number: nobody yields to that. */
export function generationOf({ metadata }: KubeObject): number {
  const stamp = metadata.annotations?.[GENERATION_ANNOTATION];
  return typeof stamp === "string" && GENERATION.test(stamp) ? Number(stamp) : 0;
}

/** Whether a replica asks on this object whether a newer one runs. */
export function isAsking({ metadata }: KubeObject): boolean {
  return metadata.annotations?.[ASKED_BY_ANNOTATION] !== undefined;
}

/** The annotations of a merge patch by which a replica asks. */
export function questionBy(generation: number): Readonly<Record<string, string>> {
  return { [ASKED_BY_ANNOTATION]: String(generation) };
}

/** The annotations of a merge patch that answers: a newer replica runs, or one that took the object over. */
export const ANSWER: Readonly<Record<string, null>> = { [ASKED_BY_ANNOTATION]: null };
