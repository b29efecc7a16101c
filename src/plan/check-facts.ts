import type { JsonObject } from "../api/json-fields.ts";
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
import { listedObjects } from "./listed-objects.ts";
import { intermediateOf } from "./version-changes.ts";

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
    const names = failed.filter((one) => inTreeResourceOf(one) === manifest.name).map(({ metadata }) => metadata.name);
    entries.push(checkCrd(manifest, { ...(await factsOf(context, manifest)), failedInTree: names }));
  }
  return entries;
}

async function factsOf(context: CallContext, manifest: CrdManifest): Promise<Omit<CheckFacts, "failedInTree">> {
  const { client, retrier, signal } = context;
  const live = await retrier.run(() => findCrd(client, manifest.name, { signal }), signal);
  const dryRun = await dryRunOf(context, manifest.name, manifest.object);
  if (live === undefined) {
    return { dryRun };
  }
  const intermediate = intermediateOf(manifest, live);
  return {
    live,
    dryRun,
    intermediateDryRun: intermediate && (await dryRunOf(context, manifest.name, intermediate)),
    objects: await listedObjects(context, live),
  };
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

/** Those that this user may not list are not known; a run waits for running ones in any case. */
async function failedInTree({ client, retrier, signal }: CallContext): Promise<readonly InTreeMigration[]> {
  try {
    const all = await retrier.run(() => inTreeMigrations(client, { signal }), signal);
    return all.filter((migration) => inTreeStateOf(migration) === "Failed");
  } catch (error) {
    if (isForbidden(error)) {
      return [];
    }
    throw error;
  }
}
