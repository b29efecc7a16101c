import { CHECKPOINTS } from "./mutations/checkpoints.ts";
import { CONTROLLERS } from "./mutations/controllers.ts";
import { ENCRYPTION } from "./mutations/encryption-mutations.ts";
import { ENGINE } from "./mutations/engine.ts";
import { EVIDENCE_MUTATIONS } from "./mutations/evidence.ts";
import { FREEZES } from "./mutations/freeze-mutations.ts";
import { LEASES } from "./mutations/lease-mutations.ts";
import type { Mutation } from "./mutations/mutation.ts";
import { OBJECTS } from "./mutations/object-mutations.ts";
import { SETTLING } from "./mutations/settling.ts";
import { TRIGGERS } from "./mutations/triggers.ts";
import { WEBHOOKS } from "./mutations/webhooks.ts";

export type { Mutation } from "./mutations/mutation.ts";

/** What the simulation has to find: each takes a safeguard away, or makes a rule wrong by one step. */
export const MUTATIONS: readonly Mutation[] = [
  ...SETTLING,
  ...EVIDENCE_MUTATIONS,
  ...OBJECTS,
  ...CHECKPOINTS,
  ...LEASES,
  ...FREEZES,
  ...CONTROLLERS,
  ...TRIGGERS,
  ...ENGINE,
  ...ENCRYPTION,
  ...WEBHOOKS,
];
