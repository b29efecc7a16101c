import { MANAGED_BY, MANAGED_BY_LABEL } from "../../src/api/names.ts";
import type { ControlPlane } from "../control-plane/control-plane.ts";
import { call } from "./api.ts";
import { crdName } from "./crds.ts";

/** What every step is handed. */
export interface Stage {
  readonly controlPlane: ControlPlane;
  readonly signal: AbortSignal;
}

/** How many widgets there are before other clients create more. */
export const OBJECTS = 5_000;
export const WIDGETS = crdName("widgets");

/** The objects of the kinds that ksvm creates which carry its label. */
export async function listOurs(controlPlane: ControlPlane): Promise<readonly string[]> {
  const found: string[] = [];
  for (const path of [
    "/apis/coordination.k8s.io/v1/leases",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
  ]) {
    const query = new URLSearchParams({ labelSelector: `${MANAGED_BY_LABEL}=${MANAGED_BY}` });
    const { items } = await call<{ readonly items: readonly { readonly metadata: { readonly name: string } }[] }>(
      controlPlane,
      `${path}?${query.toString()}`,
    );
    found.push(...items.map(({ metadata }) => `${path}/${metadata.name}`));
  }
  return found;
}
