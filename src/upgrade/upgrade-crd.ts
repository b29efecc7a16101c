import {
  type CustomResourceDefinition,
  servedVersionsOf,
  specKeyOf,
  storageVersionOf,
  storedVersionsOf,
} from "../api/crd.ts";
import { KsvmError, messageOf } from "../errors.ts";
import { foreignFreeze, freezerOf } from "../freeze/freeze.ts";
import { isConflict } from "../old/kube/client.ts";
import { checkManifest } from "../plan/check-facts.ts";
import { lossNotesOf } from "../plan/check-notes.ts";
import type { CheckEntry } from "../plan/check-types.ts";
import type { CrdManifest } from "../plan/crd-manifests.ts";
import { hasWebhookOf, webhookTextOf } from "../plan/conversion-webhook.ts";
import { outgoingVersionsOf, targetVersionOf } from "../plan/version-changes.ts";
import type { CallContext } from "../old/retry/call-context.ts";
import { isOwnedByUpgrade, planUpgrade, type UpgradePlan, type UpgradeStep } from "./upgrade-steps.ts";
import { awaitReadable, createCrd, handOver, takeBack, tryWrite, writeCrd } from "./upgrade-writes.ts";

/** What {@link upgradeCrd} is handed. */
export interface UpgradeContext extends CallContext {
  /** For the check before each step, which does not wait long. */
  readonly checking: CallContext;
  /** Whether the file itself is written, too. */
  readonly isApplied: boolean;
  /**
   * Rewrites every object of the CRD, also where it is clean. @returns whether that is done and storedVersions pruned
   */
  readonly migrate: () => Promise<boolean>;
  /** Told before each step, with what objects and their clients lose by the file. */
  readonly onStep: (step: UpgradeStep, losses: readonly string[]) => void;
}

/** How an upgrade ended, where nothing was thrown. */
export type UpgradeEnd =
  /** The CRD is what the file says, or the file can be applied. */
  | { readonly outcome: "done"; readonly entry: CheckEntry }
  /** It would lose data, or the API server refuses it. */
  | { readonly outcome: "refused" | "unknown"; readonly entry: CheckEntry }
  /** The migration has reported why. */
  | { readonly outcome: "incomplete" };

/** A CRD and a file, looked at together. */
export interface Survey extends UpgradePlan {
  readonly live?: CustomResourceDefinition | undefined;
  readonly entry: CheckEntry;
}

/** How often other clients may write the CRD between a look at it and a step. */
const MAX_CONFLICTS = 10;

/**
 * Compares a file with the CRD of the cluster, and plans what is left. It sends reads and dry runs only.
 * @throws {KsvmError} as {@link checkManifest}; ForeignFreeze where the storage version would have to change and is
 *   frozen.
 */
export async function survey(
  context: Pick<UpgradeContext, "checking" | "isApplied">,
  manifest: CrdManifest,
): Promise<Survey> {
  // The very CRD that the verdict is about: a step has its resourceVersion as precondition, so that neither rests on
  // another one.
  const { entry, live } = await checkManifest(context.checking, manifest, { isReplaced: context.isApplied });
  if (outcomeOf(entry) !== undefined) {
    return { steps: [], entry, live };
  }
  const { refusal, steps } = planUpgrade(manifest, live, context.isApplied);
  if (refusal !== undefined) {
    return { steps, live, entry: { ...entry, verdict: "refused", reason: refusal, steps: [] } };
  }
  const flip = steps.find(({ kind }) => kind === "flip");
  if (live !== undefined && flip?.spec !== undefined) {
    if (freezerOf(live.metadata) === "other") throw foreignFreeze(manifest.name);
    await tryWrite(context.checking, live, { spec: flip.spec });
  }
  return { steps, entry, live };
}

/** How a check ends an upgrade; `undefined` where it goes on. */
export function outcomeOf({ verdict }: CheckEntry): "refused" | "unknown" | undefined {
  const isRefused = verdict === "refused" || verdict === "data-loss";
  return isRefused ? "refused" : verdict === "unknown" ? "unknown" : undefined;
}

/**
 * Takes a CRD from what it is to what a file says, step by step. Before each step it looks again, so that a step rests
 * on what is there, and a second call goes on where the first one was killed.
 *
 * @throws {KsvmError} StorageVersionChanged where another client undoes a step; PruneFailed where the migrator does not
 *   prune; RetryBudgetExceeded where a conversion webhook
 *   does not come up; whatever else a request fails with.
 */
export async function upgradeCrd(context: UpgradeContext, manifest: CrdManifest): Promise<UpgradeEnd> {
  const done: Done = new Map();
  let added: Added | undefined;
  for (let conflicts = 0; ; ) {
    context.signal.throwIfAborted();
    const found = await survey(context, manifest);
    const outcome = outcomeOf(found.entry);
    if (outcome !== undefined) {
      return { outcome, entry: found.entry };
    }
    const step = found.steps.find((one) => isLeft(one, { manifest, live: found.live, done }));
    if (step === undefined) {
      return { outcome: "done", entry: found.entry };
    }
    assertNotUndone(manifest, step, { live: found.live, done });
    context.onStep(step, lossNotesOf(manifest, found.live));
    try {
      if (step.kind === "migrate" && !(await context.migrate())) {
        return { outcome: "incomplete" };
      }
      added = (await carryOut(context, manifest, { step, live: found.live, added })) ?? added;
      done.set(step.kind, specAt(found.live));
    } catch (error) {
      if (!isConflict(error) || ++conflicts > MAX_CONFLICTS) {
        throw error;
      }
    }
  }
}

/**
 * What a file says is written once in a call, whether or not the CRD says it already. Once this call has rewritten
 * every object, storedVersions tells whether any was stored in an old version since. A hand-over is over when nothing
 * is owned.
 */
function isLeft(
  { kind }: UpgradeStep,
  { done, live, manifest }: Pick<Turn, "live"> & { readonly done: Done; readonly manifest: CrdManifest },
): boolean {
  switch (kind) {
    case "apply":
      return !done.has(kind);
    case "migrate":
      return !done.has(kind) || (live !== undefined && outgoingVersionsOf(manifest, live).length > 0);
    case "hand-over":
      return live !== undefined && isOwnedByUpgrade(live);
    default:
      return true;
  }
}

function assertNotUndone(
  { name }: CrdManifest,
  step: UpgradeStep,
  { done, live }: Pick<Turn, "live"> & { readonly done: Done },
): void {
  const { does, kind } = step;
  assertPruned(step, live, done);
  if (kind !== "apply" && kind !== "hand-over" && done.has(kind)) {
    throw new KsvmError(
      "StorageVersionChanged",
      `Cannot go on with "${name}": another client has undone the step that ${does}; pause what applies the old CRD, such ` +
        "as an Argo CD or Flux sync or the operator itself, and run again",
    );
  }
}

/** The steps of this call, and which spec each found. */
type Done = Map<UpgradeStep["kind"], string | undefined>;

function specAt(live: CustomResourceDefinition | undefined): string | undefined {
  return live && specKeyOf(live.metadata);
}

/**
 * Where a migration has succeeded, the spec is the same since, and storedVersions is not pruned, the migrator does not
 * prune.
 */
function assertPruned({ kind }: UpgradeStep, live: CustomResourceDefinition | undefined, done: Done): void {
  if (kind !== "migrate" || live === undefined || specAt(live) !== done.get(kind)) {
    return;
  }
  const { name } = live.metadata;
  const storage = storageVersionOf(live);
  const left = storedVersionsOf(live).filter((version) => version !== storage);
  throw new KsvmError(
    "PruneFailed",
    `Cannot go on with "${name}": its migration succeeded, and storedVersions still lists ${left.join(", ")}: a controller with ` +
      "--manage-stored-versions=false does not prune; run again once another program has pruned, or with --standalone",
  );
}

/** What was added in this call, for the way back. */
interface Added {
  /** The resourceVersion after it. */
  readonly added: string;
  readonly before: CustomResourceDefinition["spec"];
  readonly version: string;
}

interface Turn {
  readonly step: UpgradeStep;
  readonly live: CustomResourceDefinition | undefined;
  readonly added: Added | undefined;
}

async function carryOut(
  context: UpgradeContext,
  manifest: CrdManifest,
  { added, live, step }: Turn,
): Promise<Added | undefined> {
  const { kind, spec } = step;
  if (live === undefined) {
    await createCrd(context, manifest);
    return undefined;
  }
  if (kind === "hand-over") {
    await handOver(context, live);
  }
  if (spec === undefined) {
    return undefined;
  }
  const version = targetVersionOf(manifest) ?? "";
  if (isStoredBy(step, manifest, live) && servedVersionsOf(live).includes(version)) {
    await converted(context, live, { version, added });
  }
  const metadata = kind === "apply" ? { metadata: manifest.object["metadata"] as CrdMetadata } : {};
  const written = await writeCrd(context, live, { spec, ...metadata });
  const isChanged = specKeyOf(written.metadata) !== specKeyOf(live.metadata);
  return kind === "serve" && isChanged
    ? { added: written.metadata.resourceVersion, before: live.spec, version }
    : undefined;
}

/** Whether objects are stored in another version after a step, by what converts them now. */
function isStoredBy({ kind }: UpgradeStep, manifest: CrdManifest, live: CustomResourceDefinition): boolean {
  const isChanged = storageVersionOf(live) !== targetVersionOf(manifest);
  return kind === "flip" || (kind === "apply" && isChanged && hasWebhookOf(manifest, live));
}

type CrdMetadata = Readonly<Record<string, unknown>>;

/** Before anything is stored in a version, every object has to be readable in it: later there is no way back. */
async function converted(
  context: UpgradeContext,
  live: CustomResourceDefinition,
  { added, version }: { readonly version: string; readonly added: Added | undefined },
): Promise<void> {
  const { name } = live.metadata;
  try {
    await awaitReadable(context, live, version);
  } catch (error) {
    context.signal.throwIfAborted();
    const isBack = added !== undefined && (await takeBack(context, name, added));
    const stored = storedVersionsOf(live).includes(version) ? "" : "; nothing is stored in it";
    const state = isBack
      ? "the CRD is again as it was"
      : `${version} is in the CRD and not its storage version${stored}`;
    throw new KsvmError(
      error instanceof KsvmError ? error.code : "Internal",
      `Cannot make ${version} the storage version of "${name}": its objects cannot be read in ${version}: ` +
        `${messageOf(error)}; ${state}. Start ${webhookTextOf(live.spec.conversion)}, then run again`,
      { cause: error },
    );
  }
}
