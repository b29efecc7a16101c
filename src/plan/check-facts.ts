import type { CustomResourceDefinition } from "../api/crd.ts";
import { objectIn } from "../api/json-fields.ts";
import { KsvmError } from "../errors.ts";
import type { WriteOptions } from "../old/kube/call-options.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { ApiError } from "../old/kube/errors.ts";
import { failureKindOf, isForbidden } from "../old/kube/failure.ts";
import { APPLY_PATCH, CRDS, JSON_PATCH } from "../old/kube/resources.ts";
import {
  type InTreeMigration,
  inTreeMigrations,
  inTreeResourceOf,
  inTreeStateOf,
} from "../in-tree/in-tree-migrations.ts";
import { crdResourceOf, findCrd } from "../resources/crds.ts";
import type { CallContext } from "../old/retry/call-context.ts";
import { checkCrd } from "./check.ts";
import type { CheckEntry, CheckFacts, DryRun } from "./check-types.ts";
import type { CrdManifest } from "./crd-manifests.ts";
import { crdReplacement } from "./crd-replacement.ts";
import { countFieldVersions, type FieldVersions } from "./field-versions.ts";
import { applierOf, otherCausesOf } from "./left-fields.ts";
import { listedObjects } from "./listed-objects.ts";
import { hasVersion, intermediateOf, removedVersionsOf } from "./version-changes.ts";

/**
 * How long a check tries, in milliseconds: a pipeline waits for the answer. A conversion webhook that is down keeps the
 * objects from being listed; most of them are not up within a check.
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
    entries.push((await checked(context, manifest, { failed })).entry);
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
 * @param isReplaced whether the file is to take the place of all that `spec` has, and is not left to its own client
 * @throws as {@link checkManifests}.
 */
export async function checkManifest(
  context: CallContext,
  manifest: CrdManifest,
  { isReplaced }: Required<Pick<CheckFacts, "isReplaced">>,
): Promise<CheckedManifest> {
  return checked(context, manifest, { failed: await failedInTree(context), isReplaced });
}

async function checked(
  context: CallContext,
  manifest: CrdManifest,
  {
    failed,
    isReplaced = false,
  }: { readonly failed: readonly InTreeMigration[] | undefined; readonly isReplaced?: boolean },
): Promise<CheckedManifest> {
  const names = failed?.filter((one) => inTreeResourceOf(one) === manifest.name).map(({ metadata }) => metadata.name);
  const facts = await factsOf(context, manifest);
  return { entry: checkCrd(manifest, { ...facts, failedInTree: names, isReplaced }), live: facts.live };
}

async function factsOf(context: CallContext, manifest: CrdManifest): Promise<Omit<CheckFacts, "failedInTree">> {
  const { client, retrier, signal } = context;
  const live = await retrier.run(() => findCrd(client, manifest.name, { signal }), signal);
  const dryRun = await dryRunOf(context, manifest, live);
  if (live === undefined) {
    return { dryRun };
  }
  const intermediate = intermediateOf(manifest, live);
  const objects = await listedObjects(context, live);
  return {
    live,
    dryRun,
    intermediateDryRun: intermediate && (await dryRunOf(context, { ...manifest, object: intermediate }, live)),
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

/**
 * A forced apply: it takes the fields of a file over from all other clients, as applying the file is meant to. It has
 * the name of the client that applies the CRD server-side, if there is one, so that it takes away the same as that one.
 * Where it is refused for what it would have left, the API server is asked once more, as {@link crdReplacement}.
 */
async function dryRunOf(
  context: CallContext,
  { name, object }: Pick<CrdManifest, "name" | "object">,
  live: CustomResourceDefinition | undefined,
): Promise<DryRun> {
  const fieldManager = (live && applierOf(live)) ?? FIELD_MANAGER;
  const apply = { type: APPLY_PATCH, body: object };
  const applied = await saidTo(context, name, { patch: apply, options: { force: true, fieldManager } });
  // Without causes it is no word about the fields of the CRD: a policy, or a file that no apply can read.
  const isAboutFields = applied.outcome === "refused" && applied.causes.length > 0 && otherCausesOf(applied).length > 0;
  if (live === undefined || !isAboutFields) {
    return applied;
  }
  const { metadata, spec } = object;
  const body = crdReplacement(live, { spec: objectIn(spec) ?? {}, metadata: objectIn(metadata) });
  const options = { fieldManager: FIELD_MANAGER };
  return { ...applied, replaced: await saidTo(context, name, { patch: { type: JSON_PATCH, body }, options }) };
}

async function saidTo(
  { client, retrier, signal }: CallContext,
  name: string,
  { options, patch }: { readonly patch: Parameters<ApiClient["patch"]>[2]; readonly options: WriteOptions },
): Promise<DryRun> {
  try {
    await retrier.run(() => client.patch(CRDS, { name }, patch, { ...options, dryRun: true, signal }), signal);
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
