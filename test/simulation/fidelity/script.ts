import type { Scenario } from "./script-scenario.ts";
import { access } from "./scenarios/access.ts";
import { hangingWebhook, mutatingWebhook, policies, webhooks } from "./scenarios/foreign-admission.ts";
import { builtIns, certificates } from "./scenarios/built-in-requests.ts";
import { encryption, events, twoServers } from "./scenarios/built-ins.ts";
import { conversions } from "./scenarios/conversion-webhooks.ts";
import { crdByApply, crdConversion, crdDeletion, crdLife } from "./scenarios/crd-life.ts";
import { discovery } from "./scenarios/discovery.ts";
import { freezeByPolicy, freezeByWebhook } from "./scenarios/freezes.ts";
import { dryRuns, goneVersions, oldStates, unconvertedManagers } from "./scenarios/gone-versions.ts";
import { lateWrites } from "./scenarios/late-writes.ts";
import { identityLeases, leases } from "./scenarios/leases.ts";
import { expiredTokens, lists } from "./scenarios/list-pages.ts";
import { lostVersions } from "./scenarios/missing-versions.ts";
import { migrations } from "./scenarios/migrations.ts";
import { clusterScoped, deletions, edits, noOpWrites } from "./scenarios/objects.ts";
import { optionalApis, otherRelease, restarts } from "./scenarios/restarts.ts";
import { watches, watchesAcrossChanges, watchesOfCrds } from "./scenarios/script-watches.ts";

/** Every scenario in which the model has to behave as real API servers do. */
export const SCRIPT: readonly Scenario[] = [
  discovery,
  crdLife,
  crdByApply,
  crdConversion,
  crdDeletion,
  noOpWrites,
  edits,
  deletions,
  clusterScoped,
  lists,
  watches,
  watchesOfCrds,
  watchesAcrossChanges,
  leases,
  identityLeases,
  policies,
  webhooks,
  hangingWebhook,
  mutatingWebhook,
  freezeByPolicy,
  conversions,
  access,
  migrations,
  lateWrites,
  builtIns,
  certificates,
  goneVersions,
  lostVersions,
  unconvertedManagers,
  dryRuns,
  oldStates,
  events,
  encryption,
  twoServers,
  freezeByWebhook,
  expiredTokens,
  restarts,
  optionalApis,
  otherRelease,
];
