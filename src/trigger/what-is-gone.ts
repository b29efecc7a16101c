import type { StateFacts } from "./next-status.ts";
import type { Observation } from "./observer.ts";

/** Whether a StorageState is of a CRD that was deleted, and its objects with it. */
export function isOrphan(name: string, state: StateFacts, { crds, observed }: Observation): boolean {
  return state.crd !== undefined && !crds.has(name) && !observed.some((one) => one.name === name);
}

/** Which resources an observation shows to be gone: nothing is known of those whose group an API server does not show. */
export function goneBy({ crds, leftOut, observed, unavailable }: Observation): (name: string) => boolean {
  const there = new Set([...observed, ...leftOut].map(({ name }) => name));
  const hidden = new Set(unavailable.map(({ group }) => group));
  return (name) => !there.has(name) && !crds.has(name) && !hidden.has(name.split(".").slice(1).join("."));
}

/** Whether a user switched the trigger off for a resource. */
export function isOptedOut(name: string, { leftOut }: Observation): boolean {
  return leftOut.some((one) => one.name === name && one.isOptedOut);
}
