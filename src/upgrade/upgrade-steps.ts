import {
  type CrdVersion,
  type CustomResourceDefinition,
  servedVersionsOf,
  storageVersionOf,
  storedVersionsOf,
} from "../api/crd.ts";
import { type JsonObject, listIn, objectIn, textIn } from "../api/json-fields.ts";
import { UPGRADE_FIELD_MANAGER } from "../api/names.ts";
import { clientConfigIn, conversionOf, hasWebhookOf, isSameServer } from "../plan/conversion-webhook.ts";
import type { CrdManifest } from "../plan/crd-manifests.ts";
import { hasVersion, outgoingOf, strategyOf, targetVersionOf } from "../plan/version-changes.ts";

/**
 * One step from the CRD of the cluster to that of a file. Field names are those of `ksvm migrate -f FILE --dry-run -o
 * json`.
 *
 * - `serve`: adds or serves the new storage version of the file beside those that there are; nothing is stored in it
 *   yet
 * - `flip`: makes it the storage version; the old ones stay
 * - `migrate`: rewrites every object and prunes storedVersions
 * - `apply`: writes what the file says; where that changes the storage version, once every object can be read in it
 * - `hand-over`: gives up the ownership of fields that the steps before took, so that a later apply meets no conflict
 */
export interface UpgradeStep {
  readonly kind: "serve" | "flip" | "migrate" | "apply" | "hand-over";
  /** What it does, as one sentence. */
  readonly does: string;
  readonly why: string;
  /** How to go back once it is done. */
  readonly back: string;
  /** `spec` of the CRD as the step writes it; missing where it writes none. */
  readonly spec?: JsonObject;
}

/** What leads to a file, or why nothing does. */
export interface UpgradePlan {
  readonly steps: readonly UpgradeStep[];
  /** Why the file cannot be reached without a loss, and what to change in it. */
  readonly refusal?: string;
}

/**
 * The steps that are left between the CRD in the cluster and a file. All that it rests on is in the CRD, so that it
 * tells what is left after a kill at any point.
 *
 * @param live missing where the cluster has no such CRD
 * @param isApplied whether the file itself is to be written, too
 */
export function planUpgrade(
  manifest: CrdManifest,
  live: CustomResourceDefinition | undefined,
  isApplied: boolean,
): UpgradePlan {
  if (live === undefined) {
    return { steps: isApplied ? [applyStep(specIn(manifest)), HAND_OVER] : [] };
  }
  // Objects may be stored in a version that storedVersions does not list: other clients take versions out of it.
  const versions = new Set([...storedVersionsOf(live), ...live.spec.versions.map(({ name }) => name)]);
  const outgoing = outgoingOf(manifest, live, [...versions]);
  const isFlip = outgoing.includes(storageVersionOf(live));
  const refusal = isFlip ? conversionGapOf(manifest, live) : undefined;
  if (refusal !== undefined) {
    return { steps: [], refusal };
  }
  const migration = outgoing.length > 0 ? [migrateStep(manifest, live, outgoing)] : [];
  const flipping = isFlip ? flipSteps(manifest, live) : [];
  const applying = isApplied ? applySteps(manifest, live, isFlip) : [];
  return { steps: handedOver(live, [...flipping, ...migration, ...applying]) };
}

/**
 * A storage version that the file's webhook converts is served by it first, so that nothing is stored in it before the
 * webhook answers.
 */
function applySteps(manifest: CrdManifest, live: CustomResourceDefinition, isFlipped: boolean): readonly UpgradeStep[] {
  const isConverted = strategyOf(manifest) === "Webhook" && targetVersionOf(manifest) !== storageVersionOf(live);
  const isAwaited = !isFlipped && isConverted && (isUnserved(manifest, live) || !hasWebhookOf(manifest, live));
  const served = isAwaited ? [serveStep(manifest, live, conversionFor(manifest, live))] : [];
  return [...served, applyStep(appliedSpecOf(manifest, live))];
}

/** Whether the file serves its storage version, and the CRD does not yet, so that no object can be read in it. */
function isUnserved(manifest: CrdManifest, live: CustomResourceDefinition): boolean {
  const target = targetVersionOf(manifest) ?? "";
  const isServed = servedVersionsOf(live).includes(target);
  return isNew(live, target) || (!isServed && entryOf(manifest, target)?.served === true);
}

function handedOver(live: CustomResourceDefinition, steps: readonly UpgradeStep[]): readonly UpgradeStep[] {
  const isOwner = isOwnedByUpgrade(live) || steps.some(({ spec }) => spec !== undefined);
  return isOwner ? [...steps, HAND_OVER] : steps;
}

/** Whether an earlier step still owns fields of the CRD. */
export function isOwnedByUpgrade({ metadata: { managedFields = [] } }: CustomResourceDefinition): boolean {
  return managedFields.some(({ manager }) => manager === UPGRADE_FIELD_MANAGER);
}

/**
 * The version that a file brings and the CRD does not have, where objects are to be stored in it before the file is
 * applied.
 */
function isNew(live: CustomResourceDefinition, version: string): boolean {
  return live.spec.versions.every(({ name }) => name !== version);
}

/**
 * The file's own way of converting is taken where its version is new. Without one, the API server would only exchange
 * the apiVersion of objects that a webhook has converted until now.
 */
function conversionGapOf(manifest: CrdManifest, live: CustomResourceDefinition): string | undefined {
  const target = targetVersionOf(manifest) ?? "";
  const isByWebhook = live.spec.conversion?.strategy === "Webhook";
  const isGap = isNew(live, target) && isByWebhook && strategyOf(manifest) !== "Webhook";
  return isGap
    ? `a conversion webhook converts the objects of this CRD, and the file, which brings ${target}, has none: nothing would ` +
        `convert them to ${target}; keep spec.conversion with a webhook that knows ${target} in this file, and leave it out in the next one`
    : undefined;
}

function flipSteps(manifest: CrdManifest, live: CustomResourceDefinition): readonly UpgradeStep[] {
  const target = targetVersionOf(manifest) ?? "";
  const old = storageVersionOf(live);
  // The CRD goes on to convert the versions that it has.
  const conversion = isNew(live, target) ? conversionFor(manifest, live) : {};
  const isAwaited = isUnserved(manifest, live);
  const served = isAwaited ? servedSpecOf(manifest, live, conversion) : live.spec;
  const versions = versionsIn(served).map((one) =>
    one.name === target ? { ...entryOf(manifest, target), storage: true } : { ...one, storage: false },
  );
  const flip: UpgradeStep = {
    kind: "flip",
    does: `makes ${target} the storage version, and keeps ${old} in spec.versions`,
    why: `the file ${hasVersion(manifest, old) ? `has no conversion webhook for ${old}` : `drops ${old}`}, and what is written from now on is not stored in it`,
    back: `make ${old} the storage version again; what is stored in ${target} stays readable`,
    spec: { ...served, versions },
  };
  return isAwaited ? [serveStep(manifest, live, conversion), flip] : [flip];
}

function serveStep(manifest: CrdManifest, live: CustomResourceDefinition, conversion: JsonObject): UpgradeStep {
  const target = targetVersionOf(manifest) ?? "";
  const isAdded = isNew(live, target);
  const kept = namesOf(live.spec.versions.filter(({ name }) => name !== target));
  return {
    kind: "serve",
    does: `${isAdded ? `adds ${target} to spec.versions` : `serves ${target}`} as the file has it, and keeps ${kept}`,
    why: `objects can be stored in ${target} only once ${isAdded ? "the API server knows it" : "they can be read in it"}; ${storageVersionOf(live)} stays the storage version`,
    back: isAdded
      ? `take ${target} out of spec.versions again`
      : `apply the CRD as it was; nothing is stored in ${target} by this`,
    spec: servedSpecOf(manifest, live, conversion),
  };
}

/** The CRD with the file's storage version beside its own. */
function servedSpecOf(manifest: CrdManifest, live: CustomResourceDefinition, conversion: JsonObject): JsonObject {
  const target = targetVersionOf(manifest) ?? "";
  const entry = { ...entryOf(manifest, target), storage: false };
  const versions = isNew(live, target)
    ? [...live.spec.versions, entry]
    : live.spec.versions.map((one) => (one.name === target ? entry : one));
  return { ...live.spec, ...conversion, versions };
}

function entryOf(manifest: CrdManifest, version: string): CrdVersion | undefined {
  return versionsIn(specIn(manifest)).find(({ name }) => name === version);
}

function migrateStep(manifest: CrdManifest, live: CustomResourceDefinition, outgoing: readonly string[]): UpgradeStep {
  const current = storageVersionOf(live);
  const target = outgoing.includes(current) ? (targetVersionOf(manifest) ?? "") : current;
  const isDropped = outgoing.some((version) => !hasVersion(manifest, version));
  return {
    kind: "migrate",
    does: `rewrites every object in ${target} and prunes storedVersions to it`,
    why: `the file ${isDropped ? "drops" : "has no conversion webhook for"} ${outgoing.join(", ")}, and objects may be stored in it, whatever storedVersions says`,
    back: `until the file is applied, make ${outgoing[0] ?? ""} the storage version again and run ksvm migrate ${manifest.name}`,
  };
}

function applyStep(spec: JsonObject): UpgradeStep {
  const back = "apply the CRD as it was: what it had besides is served again, and objects stay as they are stored";
  return { kind: "apply", does: "writes what the file says", why: "--apply asks for it", back, spec };
}

const HAND_OVER: UpgradeStep = {
  kind: "hand-over",
  does: `takes the field manager ${UPGRADE_FIELD_MANAGER} out of the CRD's managedFields`,
  why: "a server-side apply of the file by its own client then meets no conflict",
  back: "nothing to go back to: no field changes",
};

/** The spec of the file, and the CA bundle that another client has put into the CRD for the same webhook. */
function appliedSpecOf(manifest: CrdManifest, live: CustomResourceDefinition): JsonObject {
  return { ...specIn(manifest), ...conversionFor(manifest, live) };
}

function conversionFor(manifest: CrdManifest, live: CustomResourceDefinition): JsonObject {
  const conversion = keptBundle(conversionOf(manifest), live);
  return conversion === undefined ? {} : { conversion };
}

/** cert-manager and others write the CA bundle into the CRD; files rarely have it. */
function keptBundle(conversion: JsonObject | undefined, live: CustomResourceDefinition): JsonObject | undefined {
  const config = clientConfigIn(conversion);
  const known = clientConfigIn(live.spec.conversion);
  const bundle = textIn(known?.["caBundle"]);
  if (
    config === undefined ||
    bundle === undefined ||
    config["caBundle"] !== undefined ||
    !isSameServer(config, known)
  ) {
    return conversion;
  }
  return {
    ...conversion,
    webhook: { ...objectIn(conversion?.["webhook"]), clientConfig: { ...config, caBundle: bundle } },
  };
}

function specIn({ object }: CrdManifest): JsonObject {
  return objectIn(object["spec"]) ?? {};
}

function versionsIn(spec: JsonObject): readonly CrdVersion[] {
  return listIn(spec["versions"]) as readonly CrdVersion[];
}

function namesOf(versions: readonly CrdVersion[]): string {
  return versions.map(({ name }) => name).join(", ");
}
