import type { CustomResourceDefinition } from "../api/crd.ts";
import type { JsonObject } from "../api/json-fields.ts";
import { KsvmError } from "../errors.ts";
import { ApiError } from "../kube/errors.ts";
import { failureKindOf, isForbidden } from "../kube/failure.ts";
import { APPLY_PATCH, CRDS } from "../kube/resources.ts";
import {
  type InTreeMigration,
  inTreeMigrations,
  inTreeResourceOf,
  inTreeStateOf,
} from "../in-tree/in-tree-migrations.ts";
import { findCrd } from "../resources/read-crd.ts";
import type { CallContext } from "../retry/call-context.ts";
import { checkCrd } from "./check.ts";
import type { CheckEntry, CheckFacts, DryRun } from "./check-types.ts";
import type { CrdManifest } from "./crd-manifests.ts";
import { countFieldVersions, type FieldVersions } from "./field-versions.ts";
import { listedObjects } from "./listed-objects.ts";
import { crdResourceOf } from "../resources/request-resource.ts";
import { hasVersion, intermediateOf, removedVersionsOf } from "./version-changes.ts";

/**
 * How long a check tries, in milliseconds: a pipeline waits for the answer. A conversion webhook that is down keeps the objects
 * from being listed; most of them are not up within a check.
 */
export const CHECK_PATIENCE = { maxIdleMs: 30_000, webhookWaitMs: 5_000 } as const;
/** Dry runs own fields under this name in the answer; nothing is stored. */
const FIELD_MANAGER = "ksvm-check";

/**
 * Compares CRD files with those of the cluster. It sends nothing but reads and dry runs.
 * @throws {KsvmError} RetryBudgetExceeded where the API server does not answer; Forbidden where CRDs may not be read.
 */
export async function checkManifests(
  context: CallContext,
  manifests: readonly CrdManifest[],
): Promise<readonly CheckEntry[]> {
  const failed = await failedInTree(context);
  const entries: CheckEntry[] = [];
  for (const manifest of manifests) {
    entries.push((await checked(context, manifest, failed)).entry);
  }
  return entries;
}

/** A verdict, and the CRD of the cluster that it is about: missing where there is none. */
export interface CheckedManifest {
  readonly entry: CheckEntry;
  readonly live: CustomResourceDefinition | undefined;
}

/**
 * Compares a CRD file with the cluster's as {@link checkManifests} does.
 * @throws as {@link checkManifests}.
 */
export async function checkManifest(context: CallContext, manifest: CrdManifest): Promise<CheckedManifest> {
  return checked(context, manifest, await failedInTree(context));
}

async function checked(
  context: CallContext,
  manifest: CrdManifest,
  failed: readonly InTreeMigration[] | undefined,
): Promise<CheckedManifest> {
  const names = failed?.filter((one) => inTreeResourceOf(one) === manifest.name).map(({ metadata }) => metadata.name);
  const facts = await factsOf(context, manifest);
  return { entry: checkCrd(manifest, { ...facts, failedInTree: names }), live: facts.live };
}

async function factsOf(context: CallContext, manifest: CrdManifest): Promise<Omit<CheckFacts, "failedInTree">> {
  const { client, retrier, signal } = context;
  const live = await retrier.run(() => findCrd(client, manifest.name, { signal }), signal);
  const dryRun = await dryRunOf(context, manifest.name, manifest.object);
  if (live === undefined) {
    return { dryRun };
  }
  const intermediate = intermediateOf(manifest, live);
  const objects = await listedObjects(context, live);
  return {
    live,
    dryRun,
    intermediateDryRun: intermediate && (await dryRunOf(context, manifest.name, intermediate)),
    objects,
    managedFields: objects?.count === undefined ? undefined : await droppedFieldVersions(context, manifest, live),
  };
}

/** Each object has to be listed for it, so only where a version is about to leave. */
async function droppedFieldVersions(
  { client, retrier, signal }: CallContext,
  manifest: CrdManifest,
  live: CustomResourceDefinition,
): Promise<FieldVersions | undefined> {
  if (removedVersionsOf(manifest, live).length === 0) {
    return undefined;
  }
  const isAskedFor = (version: string): boolean => !hasVersion(manifest, version);
  try {
    return await retrier.run(() => countFieldVersions(client, crdResourceOf(live), { isAskedFor, signal }), signal);
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof KsvmError) {
      // That the objects cannot be listed is told by the rest of the facts.
      return undefined;
    }
    throw error;
  }
}

/** A forced apply: it takes the fields of a file over from all other clients, as applying the file is meant to. */
async function dryRunOf({ client, retrier, signal }: CallContext, name: string, body: JsonObject): Promise<DryRun> {
  const options = { dryRun: true, force: true, fieldManager: FIELD_MANAGER, signal };
  try {
    await retrier.run(() => client.patch(CRDS, { name }, { type: APPLY_PATCH, body }, options), signal);
    return { outcome: "accepted" };
  } catch (error) {
    if (!(error instanceof ApiError)) {
      throw error;
    }
    if (failureKindOf(error) === "denied") {
      return { outcome: "forbidden", said: error.said };
    }
    const causes = error.answer?.details?.causes ?? [];
    return {
      outcome: "refused",
      said: error.said,
      causes: causes.map(({ field = "", message = "" }) => `${field}: ${message}`),
    };
  }
}

/** @returns `undefined` where this user may not list them; a run waits for running ones in any case */
async function failedInTree({ client, retrier, signal }: CallContext): Promise<readonly InTreeMigration[] | undefined> {
  try {
    const all = await retrier.run(() => inTreeMigrations(client, { signal }), signal);
    return all.filter((migration) => inTreeStateOf(migration) === "Failed");
  } catch (error) {
    if (isForbidden(error)) {
      return undefined;
    }
    throw error;
  }
}
