import type { BeginCheck } from "./check.ts";
import { FreezesCheck } from "./freezes-check.ts";
import { LeftFreezesCheck } from "./left-freezes-check.ts";
import { FrozenStorageCheck } from "./frozen-storage-check.ts";
import { PoliciesCheck } from "./policies-check.ts";
import { ConversionsCheck } from "./conversions-check.ts";
import { RunLeasesCheck } from "./run-leases-check.ts";
import { ControllersCheck } from "./controllers-check.ts";
import { LeaderFenceCheck } from "./leader-fence-check.ts";
import { MigratedCheck } from "./migrated-check.ts";
import { SuspendedCheck } from "./suspended-check.ts";
import { StorageStateCheck } from "./storage-state-check.ts";
import { StoredVersionsCheck } from "./stored-versions-check.ts";
import { LoadCheck } from "./load-check.ts";
import { OpenPagesCheck } from "./open-pages-check.ts";
import { ToldCheck } from "./told-check.ts";
import { UnchangedObjectsCheck } from "./unchanged-objects-check.ts";
import { IdleWebhookCheck } from "./idle-webhook-check.ts";
import { InitializedCheck } from "./initialized-check.ts";
import { TrustCheck } from "./trust-check.ts";
import { UndisturbedRunCheck } from "./undisturbed-run-check.ts";

/** What must hold in every simulated world. Those that let more happen at the end come last. */
export const CHECKS: readonly BeginCheck[] = [
  // First of those that follow requests.
  (world) => LoadCheck.of(world),
  // Where one write breaks several things, this is what is told.
  (world) => new StoredVersionsCheck(world),
  (world) => UnchangedObjectsCheck.of(world),
  (world) => new ConversionsCheck(world),
  (world) => ToldCheck.of(world),
  (world) => new OpenPagesCheck(world),
  (world) => new FreezesCheck(world),
  (world) => new FrozenStorageCheck(world),
  (world) => new PoliciesCheck(world),
  (world) => new RunLeasesCheck(world),
  (world) => new LeftFreezesCheck(world),
  (world) => new MigratedCheck(world),
  (world) => new StorageStateCheck(world),
  (world) => new LeaderFenceCheck(world),
  (world) => new SuspendedCheck(world),
  // Replicas of the controller that serve the webhook are there until the next check ends them.
  (world) => TrustCheck.of(world),
  (world) => new ControllersCheck(world),
  (world) => new UndisturbedRunCheck(world),
  (world) => IdleWebhookCheck.of(world),
  (world) => InitializedCheck.of(world),
];
