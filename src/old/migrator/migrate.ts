import type { CustomResourceDefinition } from "../../api/crd.ts";
import type { ServedResource } from "../../resources/migratable.ts";
import { findResource } from "../../resources/served-resource.ts";
import type { Access } from "../kube/access.ts";
import { CRDS } from "../kube/resources.ts";
import { accessForWrites, namingAllMissing } from "./access-check.ts";
import { guardToName } from "./choose-guard.ts";
import { accessNeededFor } from "./run-roles.ts";
import { dryRun, migrateBuiltIn } from "./migrate-built-in.ts";
import { isDue, migrateCrd, nothingToDo } from "./migrate-crd.ts";
import { findCrd } from "../../resources/read-crd.ts";
import { crdCreated } from "./listed-storage.ts";
import { servedByCrd, writtenByCrd } from "../../resources/request-resource.ts";
import type { MigrationResult } from "./result.ts";
import type { RunContext } from "./run-context.ts";
import { assertOfCrd, waysOf } from "./crd-options.ts";
import { hasLeftovers } from "../freeze/leftovers.ts";
import { unlessPruneProven } from "./doubted-prune.ts";

/**
 * Migrates one resource, or tries it by a dry-run.
 *
 * @param name `plural.group` of a CRD or a built-in resource, the plural alone in the core group
 * @throws {KsvmError} with the reason where the run failed.
 */
export async function migrate(context: RunContext, name: string): Promise<MigrationResult> {
  const { client, isPlaceWanted, options, signal } = context;
  // A group whose API server is down may be so for days: what others wait for is given up after some seconds.
  const retrier = context.retrier.with(isPlaceWanted === undefined ? {} : { isPlaceWanted });
  const work = (): Promise<CustomResourceDefinition | undefined> =>
    retrier.run(() => findCrd(client, name, { signal }), signal);
  const crd = await namingAllMissing(context, { name, wanted: () => neededBy(context, name), work });
  if (crd === undefined) {
    assertOfCrd(options, name);
    const builtIn = await retrier.run(() => findResource(client, name, { signal }), signal);
    return options.dryRun ? dryRun(context, builtIn) : migrateWithoutCrd(context, name, builtIn);
  }
  const run = await unlessPruneProven(context, crd);
  if (!options.dryRun && options.crdMode !== "rewrite") {
    return migrateFrozen(run, crd);
  }
  const { context: ready, conversion } = waysOf(run, crd);
  if (options.dryRun) {
    return isDue(ready.options, crd) ? dryRun(ready, writtenByCrd(crd), conversion) : nothingToDo(crd);
  }
  return migrateBuiltIn(ready, servedByCrd(crd), crd);
}

/** Whatever keeps a run from writing, it takes off first what a dead run left. */
async function migrateFrozen(context: RunContext, crd: CustomResourceDefinition): Promise<MigrationResult> {
  try {
    waysOf(context, crd);
  } catch (refusal) {
    if (!(await hasLeftovers(context, crd))) {
      throw refusal;
    }
  }
  return migrateCrd(context, crd);
}

/** The run looks for the CRD while it writes; giving its Lease up may take long. */
async function migrateWithoutCrd(context: RunContext, name: string, builtIn: ServedResource): Promise<MigrationResult> {
  const { client, retrier, signal } = context;
  const result = await migrateBuiltIn(context, builtIn);
  // No CRD has a group without a dot.
  if (
    builtIn.group.includes(".") &&
    (await retrier.run(() => findCrd(client, name, { signal }), signal)) !== undefined
  ) {
    throw crdCreated(name);
  }
  return result;
}

/** What a run on the resource of this name cannot do without. */
export async function neededBy(context: RunContext, name: string): Promise<readonly Access[]> {
  const { options } = context;
  const [resource = "", ...group] = name.split(".");
  const target = { group: group.join("."), resource };
  const tried = [{ verb: "list", resource: target }, accessForWrites(target, options.subresource)];
  return options.dryRun || options.crdMode === "rewrite"
    ? [{ verb: "get", resource: CRDS, name }, ...tried]
    : accessNeededFor(name, { ...options, guard: await guardToName(context, options.guard) });
}
