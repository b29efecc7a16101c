import type { DenyRule } from "../model/access-table.ts";
import { oneOf } from "../world/random-choices.ts";
import { sort } from "./action-sort.ts";
import { obstacleLastingOf } from "./choices.ts";

const ADMISSION = "admissionregistration.k8s.io";
const CRDS = { group: "apiextensions.k8s.io", resource: "customresourcedefinitions" };
const LEASES = { group: "coordination.k8s.io", resource: "leases" };

/** What a role may lack: one verb on one resource, as ksvm asks for them. */
const RIGHTS: readonly DenyRule[] = [
  ...["get", "list", "watch", "patch"].map((verb) => ({ ...CRDS, verb })),
  { ...CRDS, subresource: "status", verb: "patch" },
  ...["get", "list", "create", "patch"].map((verb) => ({ ...LEASES, verb })),
  ...["get", "create", "patch", "delete"].flatMap((verb) => [
    { group: ADMISSION, resource: "validatingadmissionpolicies", verb },
    { group: ADMISSION, resource: "validatingadmissionpolicybindings", verb },
  ]),
  ...["get", "list", "watch", "patch"].map((verb) => ({
    group: ADMISSION,
    resource: "validatingwebhookconfigurations",
    verb,
  })),
  ...["list", "patch"].map((verb) => ({ group: "sim.example.com", verb })),
  { group: "discovery.k8s.io", resource: "endpointslices" },
  ...["get", "create", "update", "watch"].map((verb) => ({ group: "", resource: "secrets", verb })),
  { path: "/metrics" },
];

/** A right of ksvm is taken away, and given back after some time. */
export const forbid = sort<{ readonly right: DenyRule; readonly ms: number }>({
  name: "forbid",
  choose: (random) => ({ right: oneOf(random, RIGHTS), ms: obstacleLastingOf(random) }),
  play({ cluster, schedule }, { right, ms }) {
    const rule = { ...right, userPrefix: "ksvm" };
    cluster.denied = [...cluster.denied, rule];
    schedule.in(ms, () => {
      cluster.denied = cluster.denied.filter((one) => one !== rule);
    });
  },
});
