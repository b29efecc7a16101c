import { CONTROLLER_LEASE, SYSTEM_NAMESPACE } from "../../../src/api/migration.ts";
import { LEASES, objectPath } from "../../../src/kube/resources.ts";
import { oneOf } from "../world/random-choices.ts";
import { sort } from "./action-sort.ts";
import { hasController } from "./choices.ts";

const SPECS = {
  /** Another client holds it, and does not renew it. */
  steal: { holderIdentity: "another", leaseDurationSeconds: 15 },
  /** The same for ten minutes. */
  hold: { holderIdentity: "another", leaseDurationSeconds: 600 },
  free: { holderIdentity: null },
  future: { renewTime: "2126-01-01T00:00:00.000000Z", acquireTime: "2126-01-01T00:00:00.000000Z" },
  empty: null,
};

/** A user edits or deletes the Lease of the leader. */
export const editLeader = sort<{ readonly how: keyof typeof SPECS | "delete" }>({
  name: "editLeader",
  weight: 3,
  suits: hasController,
  choose: (random) => ({ how: oneOf(random, ["delete", "steal", "hold", "free", "future", "empty"]) }),
  async play({ user }, { how }) {
    const path = objectPath(LEASES, { namespace: SYSTEM_NAMESPACE, name: CONTROLLER_LEASE });
    if (how === "delete") await user.send("DELETE", path);
    else await user.send("PATCH", path, { spec: SPECS[how] }, "application/merge-patch+json");
  },
});
