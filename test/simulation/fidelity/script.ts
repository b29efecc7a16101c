import type { Scenario } from "./play.ts";
import { freezeByPolicy, mutatingWebhook, webhooks } from "./scenarios/admission.ts";
import { builtIns, encryption, migrations } from "./scenarios/built-ins-and-servers.ts";
import { crdDeletion, crdLife, discovery, goneVersions } from "./scenarios/crds.ts";
import { deletions, edits, expiredTokens, lists, noOpWrites } from "./scenarios/objects-and-lists.ts";
import { lateWrites, leases, watches, watchesAcrossChanges } from "./scenarios/watches-and-leases.ts";

/** Every scenario in which the model has to behave as real API servers do. */
export const SCRIPT: readonly Scenario[] = [
  discovery,
  crdLife,
  crdDeletion,
  noOpWrites,
  edits,
  deletions,
  lists,
  watches,
  watchesAcrossChanges,
  leases,
  webhooks,
  mutatingWebhook,
  lateWrites,
  freezeByPolicy,
  migrations,
  builtIns,
  goneVersions,
  encryption,
  expiredTokens,
];
