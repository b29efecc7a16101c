import { CHECKPOINTS } from "./mutations/checkpoints.ts";
import { CONTROLLERS } from "./mutations/controllers.ts";
import { ENCRYPTION } from "./mutations/encryption-mutations.ts";
import { ENGINE } from "./mutations/engine.ts";
import { EVIDENCE_MUTATIONS } from "./mutations/evidence.ts";
import { FOLLOWED } from "./mutations/followed-crds-mutations.ts";
import { FREEZES } from "./mutations/freeze-mutations.ts";
import { LEASES } from "./mutations/lease-mutations.ts";
import type { Mutation } from "./mutations/mutation.ts";
import { OBJECTS } from "./mutations/object-mutations.ts";
import { SETTLING } from "./mutations/settling.ts";
import { TRIGGERS } from "./mutations/triggers.ts";
import { WEBHOOKS } from "./mutations/webhooks.ts";

export type { Mutation } from "./mutations/mutation.ts";

/** What the simulation has to find, by what it is about: each takes a safeguard away, or makes a rule wrong by one step. */
export const MUTATIONS_BY_AREA: Readonly<Record<string, readonly Mutation[]>> = {
  "Late writes": [...SETTLING, ...FOLLOWED],
  "API servers": EVIDENCE_MUTATIONS,
  "Lists and writes of objects": OBJECTS,
  "Where a run goes on": CHECKPOINTS,
  "The Lease of a run": LEASES,
  "The freeze, the watch of the CRD, and the prune": FREEZES,
  "The controller": CONTROLLERS,
  "The trigger": TRIGGERS,
  "What ksvm tells, changes and costs": ENGINE,
  "Re-encryption": ENCRYPTION,
  "Guards, the webhook, certificates, and the initializer": WEBHOOKS,
};

/** All of {@link MUTATIONS_BY_AREA}. */
export const MUTATIONS: readonly Mutation[] = Object.values(MUTATIONS_BY_AREA).flat();
