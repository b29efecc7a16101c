import { forbid } from "./access-actions.ts";
import type { ActionSort } from "./action-sort.ts";
import { editLeader } from "./leader-actions.ts";
import { createMigrations, editMigration, suspendMigration } from "./migration-actions.ts";
import { editStorageState } from "./storage-state-actions.ts";
import { joinServer, jumpServer, lag, slow, stopServer, unfill } from "./api-server-actions.ts";
import { disturb, leaveOut } from "./balancer-actions.ts";
import { changeConversion, convert } from "./conversion-actions.ts";
import { meddle } from "./meddling-webhook-actions.ts";
import { annotate, expectUnfrozen, recreateCrd } from "./crd-actions.ts";
import { leave } from "./departure-actions.ts";
import { editVersions, foreignPrune, keepPruning, pruneMigrated } from "./crd-version-actions.ts";
import { backUp, compact, restore, restoreBackup } from "./etcd-actions.ts";
import { damagePolicy, damageShipped, damageWebhook, deleteSecret, foreignPolicy } from "./guard-actions.ts";
import { failWebhook, mutate, pretend } from "./hostile-webhook-actions.ts";
import { inTreeMigration } from "./in-tree-actions.ts";
import { editLease } from "./lease-actions.ts";
import { writeObject } from "./object-actions.ts";
import { recreateObjects, replaceOld, terminate } from "./object-life-actions.ts";
import { expireTokens, quota, throttle } from "./overload-actions.ts";
import { crash, jump, replace, standStill, start, suspendAll } from "./process-actions.ts";
import { flip } from "./storage-version-actions.ts";
import { rotateKey, switchKey, upgrade, visit } from "./upgrade-actions.ts";
import { deny } from "./webhook-actions.ts";

/** Each sort of thing that happens in simulated worlds. */
export const ACTIONS: readonly ActionSort[] = [
  flip,
  writeObject,
  recreateCrd,
  annotate,
  editLease,
  start,
  crash,
  standStill,
  jump,
  suspendAll,
  stopServer,
  jumpServer,
  lag,
  slow,
  joinServer,
  leave,
  disturb,
  deny,
  compact,
  restore,
  backUp,
  restoreBackup,
  expectUnfrozen,
  unfill,
  createMigrations,
  editMigration,
  suspendMigration,
  editLeader,
  editStorageState,
  replace,
  forbid,
  damagePolicy,
  foreignPolicy,
  damageWebhook,
  damageShipped,
  deleteSecret,
  expireTokens,
  editVersions,
  foreignPrune,
  keepPruning,
  pruneMigrated,
  inTreeMigration,
  mutate,
  failWebhook,
  pretend,
  meddle,
  convert,
  changeConversion,
  throttle,
  quota,
  terminate,
  recreateObjects,
  replaceOld,
  upgrade,
  rotateKey,
  switchKey,
  visit,
  leaveOut,
];

const BY_NAME = new Map(ACTIONS.map((sort) => [sort.name, sort]));

/** @throws {RangeError} where there is none of that name. */
export function actionSort(name: string): ActionSort {
  const sort = BY_NAME.get(name);
  if (sort === undefined)
    throw new RangeError(`there is no action "${name}"; there are: ${[...BY_NAME.keys()].join(", ")}`);
  return sort;
}
