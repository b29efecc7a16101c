import type { StateFacts } from "./next-status.ts";
import type { Observation } from "./observer.ts";

/** Groups of Kubernetes itself: of a resource that one release no longer serves, objects may be left in etcd. */
const KUBERNETES_GROUP = /^[^.]*$|(^|\.)k8s\.io$/;

/**
 * Which StorageStates an observation shows to be of a CRD that was deleted, and its objects with it. One that remembers no CRD,
 * as where the annotation was lost before the CRD was, is one of these where the trigger made it, its group is not one of
 * Kubernetes, and every API server shows that the resource is gone.
 */
export function orphansBy(observation: Observation): (name: string, state: StateFacts) => boolean {
  const { crds, observed } = observation;
  const names = new Set(observed.map(({ name }) => name));
  const isGone = goneBy(observation);
  return (name, state) => {
    if (state.crd !== undefined) {
      return !crds.has(name) && !names.has(name);
    }
    return state.isOurs && !KUBERNETES_GROUP.test(groupOf(name)) && isGone(name);
  };
}

/** Which resources an observation shows to be gone: nothing is known of those whose group an API server does not show. */
export function goneBy({ crds, leftOut, observed, unavailable }: Observation): (name: string) => boolean {
  const there = new Set([...observed, ...leftOut].map(({ name }) => name));
  const hidden = new Set(unavailable.map(({ group }) => group));
  return (name) => !there.has(name) && !crds.has(name) && !hidden.has(groupOf(name));
}

function groupOf(name: string): string {
  return name.split(".").slice(1).join(".");
}

/** Whether a user switched the trigger off for a resource. */
export function isOptedOut(name: string, { leftOut }: Observation): boolean {
  return leftOut.some((one) => one.name === name && one.isOptedOut);
}
