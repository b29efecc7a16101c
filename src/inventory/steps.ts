import { isDeepStrictEqual } from "node:util";
import { type JsonObject, objectIn, textIn } from "../api/json-fields.ts";
import { epochOf } from "../apiservers/converge.ts";
import { freezerOf } from "../freeze/freeze.ts";
import { CRD_FIELD_MANAGER, MIGRATING } from "../freeze/rule.ts";
import { type Crd, hasConversionWebhook, storageVersion } from "../kube/objects.ts";
import { crdProblem } from "./crd-state.ts";
import type { CrdManifest } from "./manifests.ts";

/** One step from the CRD of the cluster to that of a file. Field names are those of `-o json`. */
export interface Step {
  /**
   * - `serve`: has the API server serve the file's storage version beside those that there are. Then every object is
   *   tried in it
   * - `try`: the same, where it is served already
   * - `flip`: makes it the storage version, and keeps the old ones
   * - `migrate`: rewrites every object and prunes storedVersions
   * - `apply`: writes what the file says
   */
  readonly kind: "serve" | "try" | "flip" | "migrate" | "apply";
  readonly does: string;
  readonly why: string;
  /** How to go back once it is done. */
  readonly back: string;
  /** `spec` of the CRD as the step writes it. Missing where it writes none. */
  readonly spec?: JsonObject;
  /** The API server takes the file without it, and what is known of the objects does not ask for it. */
  readonly isPrecaution?: true;
}

/** What leads to a file, or why nothing does. Field names are those of `-o json`. */
export interface Plan {
  /**
   * - `applicable`: the file can be applied as it is
   * - `needs-migration`: objects may be stored in a version that it drops, or has no conversion for
   * - `refused`: there is no way
   * - `data-loss`: objects cannot be read, and could not be afterwards
   */
  readonly verdict: "applicable" | "needs-migration" | "refused" | "data-loss";
  /** Why, as one sentence. */
  readonly reason: string;
  /** What to do where there is no way. */
  readonly help: readonly string[];
  readonly steps: readonly Step[];
}

/** What the plan rests on besides the CRD and the file. */
export interface Facts {
  /** The version of objects that the API server cannot decode, because the CRD no longer has it. */
  readonly lostIn?: string | undefined;
  /** Fields of objects that the file's schema lacks, in words. `undefined` where that is not known. */
  readonly losses?: readonly string[] | undefined;
  /** The `uid/generation` of the CRD at which this call tried every object in the file's storage version. */
  readonly tried?: string | undefined;
  /** The `uid/generation` of the CRD at which this call rewrote every object. */
  readonly rewritten?: string | undefined;
}

/** What a file changes. */
interface Change {
  /** Whether the CRD has another storage version. */
  readonly isMove: boolean;
  /** Whether objects have to leave the storage version of now. */
  readonly isFlip: boolean;
  /** Whether a webhook converts the objects now, and nothing would with the file. */
  readonly losesConversion: boolean;
  /**
   * The versions that no object may be stored in once the file is applied: those that it drops and, where it has no
   * conversion any more, all but its storage version. It does not matter whether storedVersions lists them.
   */
  readonly outgoing: readonly string[];
}

const CRD_API_VERSION = "apiextensions.k8s.io/v1";

/**
 * The steps that are left between the CRD of the cluster and a file. Everything else follows from them: what `check -f`
 * says, and what `migrate -f` does. What was done is in the CRD, so that after a kill at any point they go on there.
 *
 * No version is dropped before this call has rewritten every object: other clients take versions out of storedVersions
 * in which objects are stored.
 *
 * @param live missing where the cluster has no such CRD
 */
export function steps(live: Crd | undefined, file: CrdManifest, facts: Facts): Plan {
  if (file.apiVersion !== CRD_API_VERSION) {
    const help = [`write the file for ${CRD_API_VERSION}: each entry of spec.versions needs a schema of its own`];
    return noWay(`${file.apiVersion} is not served since Kubernetes 1.22`, help);
  }
  if (live === undefined) {
    return { verdict: "applicable", reason: "the cluster has no such CRD", help: [], steps: [applyStep(file.spec)] };
  }
  const change = changeOf(live, file);
  const stop = obstacle(live, file, facts, change);
  if (stop !== undefined) return stop;
  const { isFlip, isMove, outgoing } = change;
  const epoch = epochOf(live);
  const trial = isMove && facts.tried !== epoch ? tryStep(live, file, change) : undefined;
  const tried = trial === undefined ? [] : [trial];
  const migration = migrateStep(live, file, change);
  const migrated = outgoing.length > 0 && facts.rewritten !== epoch ? [migration] : [];
  // Where the storage version of now stays, what converts the objects now gets them out of the others.
  const left = [
    ...(isFlip ? [...tried, flipStep(live, file, trial?.spec ?? live.spec)] : []),
    ...migrated,
    ...(isFlip ? [] : tried),
    applyStep({ ...file.spec, ...conversionOf(file, live) }),
  ];
  const isNeeded = left.includes(migration) && migration.isPrecaution !== true;
  return {
    verdict: isNeeded ? "needs-migration" : "applicable",
    reason: reasonFor(live, file, change, isNeeded),
    help: [],
    steps: left,
  };
}

/** client-node's types are those of classes, and what an API server answers is none. */
export function plain<T extends object>(answered: T): { readonly [Field in keyof T]: T[Field] } {
  return answered;
}

function noWay(reason: string, help: readonly string[], verdict: Plan["verdict"] = "refused"): Plan {
  return { verdict, reason, help, steps: [] };
}

/** Whether a file has a version. */
export function hasVersion({ versions }: Pick<CrdManifest, "versions">, name: string): boolean {
  return versions.some((version) => version.name === name);
}

function changeOf(live: Crd, file: CrdManifest): Change {
  const losesConversion = hasConversionWebhook(live) && !bringsWebhook(file);
  const known = new Set([...(live.status?.storedVersions ?? []), ...live.spec.versions.map(({ name }) => name)]);
  const isConverted = !losesConversion || file.target === "";
  const outgoing = [...known].filter((name) => !hasVersion(file, name) || (!isConverted && name !== file.target));
  const isMove = file.target !== "" && file.target !== storageVersion(live);
  return { isMove, isFlip: isMove && outgoing.includes(storageVersion(live)), losesConversion, outgoing };
}

function bringsWebhook({ spec }: CrdManifest): boolean {
  return (textIn(objectIn(spec["conversion"])?.["strategy"]) ?? "None") !== "None";
}

/** Why there is no way to the file; `undefined` where there is one. */
function obstacle(live: Crd, file: CrdManifest, facts: Facts, change: Change): Plan | undefined {
  const { name } = live.metadata;
  const { isMove, losesConversion, outgoing } = change;
  const { losses, lostIn } = facts;
  const { target } = file;
  const problem = crdProblem(live);
  if (problem !== undefined && !endsItself(live, file, facts, change)) {
    const fields = losses === undefined || losses.length === 0 ? "" : `: ${losses.join(", ")}`;
    const drops = live.spec.preserveUnknownFields === true ? fields : "";
    const verdict = live.metadata.deletionTimestamp === undefined ? "refused" : "data-loss";
    return noWay(`${problem.reason}${drops}`, [problem.help], verdict);
  }
  if (lostIn !== undefined && !hasVersion(file, lostIn)) {
    const reason = `objects are stored in ${lostIn}, which neither the CRD nor this file has: no client can read them`;
    return noWay(reason, [`bring them back: ksvm doctor ${name} --repair`, "then apply this file"], "data-loss");
  }
  if ((isMove || outgoing.length > 0) && freezerOf(live.metadata) === "other") {
    const lift = `kubectl annotate crd ${name} ${MIGRATING}-`;
    return noWay(`its storage version is frozen by something other than ksvm (annotation ${MIGRATING})`, [
      `wait for it to end, or lift the freeze: ${lift}`,
    ]);
  }
  if (losesConversion && target !== "" && live.spec.versions.every((version) => version.name !== target)) {
    const gap = `the file, which brings ${target}, has none: nothing would convert them to ${target}`;
    return noWay(`a conversion webhook converts the objects of this CRD, and ${gap}`, [
      `keep spec.conversion with a webhook that knows ${target} in this file, and leave it out in the next one`,
    ]);
  }
  return undefined;
}

/** Whether a file that drops nothing ends the state that stops everything else, as by serving a version again. */
function endsItself(live: Crd, file: CrdManifest, { losses }: Facts, { outgoing }: Change): boolean {
  if (outgoing.length > 0 || file.versions.filter(({ storage }) => storage).length !== 1) return false;
  if (live.spec.preserveUnknownFields === true && losses?.length !== 0) return false;
  const preserveUnknownFields = file.spec["preserveUnknownFields"] === true;
  const spec = { ...plain(live.spec), preserveUnknownFields, versions: [...file.versions] };
  return crdProblem({ ...live, spec }) === undefined;
}

function reasonFor(live: Crd, file: CrdManifest, change: Change, isNeeded: boolean): string {
  const { outgoing } = change;
  if (outgoing.length === 0) return "it keeps every version of the CRD";
  const names = outgoing.join(", ");
  const what = outgoing.every((name) => hasVersion(file, name))
    ? `it has no conversion webhook, so that nothing would convert ${names} to ${file.target}`
    : `it drops ${names}`;
  const { storedVersions = [] } = live.status ?? {};
  if (outgoing.some((name) => storedVersions.includes(name))) {
    return `${what}, and objects may be stored in it: storedVersions lists it`;
  }
  const owner = storedVersionsOwner(live);
  const who = owner === undefined ? "" : `, which ${owner} wrote`;
  return isNeeded
    ? `${what}, and objects may be stored in it although it is not in storedVersions${who}`
    : `${what}, and it is not in storedVersions${who}`;
}

/**
 * The client that answers for `status.storedVersions`: ksvm, unless another one has changed it since, which takes the
 * field away from ksvm. The API server's own additions leave no entry, so that without one nothing was ever taken out.
 */
function storedVersionsOwner({ metadata }: Crd): string | undefined {
  const owners = (metadata.managedFields ?? []).filter(({ fieldsV1, subresource }) =>
    Object.hasOwn(subresource === "status" ? (objectIn(fieldsV1?.["f:status"]) ?? {}) : {}, "f:storedVersions"),
  );
  const names = owners
    .toSorted((a, b) => (b.time ?? "").localeCompare(a.time ?? ""))
    .map(({ manager = "unknown" }) => manager);
  return names.find((name) => name === CRD_FIELD_MANAGER) ?? names[0];
}

/** Whether another client than ksvm has taken versions out of storedVersions. */
export function isDoubted(live: Crd): boolean {
  const owner = storedVersionsOwner(live);
  return owner !== undefined && owner !== CRD_FIELD_MANAGER;
}

/** Nothing is stored in a version before every object was tried in it: later there is no way back. */
function tryStep(live: Crd, file: CrdManifest, { isFlip }: Change): Step {
  const { target } = file;
  const storage = storageVersion(live);
  const known = live.spec.versions.find(({ name }) => name === target);
  const wanted = file.versions.find(({ name }) => name === target);
  const isNew = known === undefined;
  // While objects leave a version, what has converted it goes on to do so.
  const { conversion = live.spec.conversion } = isNew || !isFlip ? conversionOf(file, live) : {};
  const isSame = known?.served === true && isDeepStrictEqual(known.schema, wanted?.schema);
  const isConverted = !bringsOtherWebhook(file, live) || conversion === live.spec.conversion;
  const tries = `reads every object in ${target}, and tries a write of each that changes nothing`;
  const why = `nothing is stored in ${target} before each object is known to pass its conversion and schema`;
  if (isSame && isConverted) {
    return { kind: "try", does: tries, why, back: "nothing to go back to: nothing is written", isPrecaution: true };
  }
  const kept = live.spec.versions.flatMap(({ name }) => (name === target ? [] : [name])).join(", ");
  return {
    kind: "serve",
    does: `${isNew ? "adds" : "serves"} ${target} as the file has it, keeps ${kept}, ${tries}`,
    why: `${why}; ${storage} stays the storage version`,
    back: isNew ? `take ${target} out of spec.versions again` : "apply the CRD as it was",
    spec: { ...plain(live.spec), conversion, versions: versionsWith(live, file, storage) },
    isPrecaution: true,
  };
}

/** @param spec as the step before leaves it */
function flipStep(live: Crd, file: CrdManifest, spec: object): Step {
  const { target } = file;
  const old = storageVersion(live);
  return {
    kind: "flip",
    does: `makes ${target} the storage version, and keeps ${old}`,
    why: `the file ${hasVersion(file, old) ? "has no conversion for" : "drops"} ${old}: nothing is stored in it any more`,
    back: `make ${old} the storage version again; what is stored in ${target} stays readable`,
    spec: { ...spec, versions: versionsWith(live, file, target) },
  };
}

/** The versions of the CRD, and the target as the file has it, served in any case: that is how objects get there. */
function versionsWith(live: Crd, file: CrdManifest, storage: string): readonly object[] {
  const others = live.spec.versions.filter(({ name }) => name !== file.target);
  const wanted = file.versions.filter(({ name }) => name === file.target);
  const all = [...others.map(plain), ...wanted.map((version) => ({ ...plain(version), served: true }))];
  return all.map((version) => ({ ...version, storage: version.name === storage }));
}

function migrateStep(live: Crd, file: CrdManifest, { isFlip, outgoing }: Change): Step {
  const { storedVersions = [] } = live.status ?? {};
  const isListed = outgoing.some((name) => storedVersions.includes(name));
  const isDropped = outgoing.some((name) => !hasVersion(file, name));
  const where = isFlip ? file.target : storageVersion(live);
  const what = `${isDropped ? "drops" : "has no conversion for"} ${outgoing.join(", ")}`;
  const command = `ksvm migrate ${file.name}`;
  return {
    kind: "migrate",
    does: `rewrites every object in ${where} and prunes storedVersions to it (${command}${isListed ? "" : " --force"})`,
    why: `the file ${what}, and objects may be stored in it, whatever storedVersions says`,
    back: `until the file is applied, make ${outgoing[0] ?? ""} the storage version again and run ${command}`,
    ...(isListed || isDoubted(live) ? {} : { isPrecaution: true }),
  };
}

function applyStep(spec: JsonObject): Step {
  const back = "apply the CRD as it was: objects stay as they are stored";
  return { kind: "apply", does: "writes what the file says", why: "every object can be read with it", back, spec };
}

/** `spec.conversion` of the file, with the CA bundle that another client put into the CRD for the same webhook. */
function conversionOf(file: CrdManifest, live: Crd): { readonly conversion?: unknown } {
  const conversion = objectIn(file.spec["conversion"]);
  if (conversion === undefined) return {};
  const clientConfig = clientConfigIn(conversion);
  const caBundle = clientConfigIn(live.spec.conversion)?.["caBundle"];
  const isKept = caBundle !== undefined && clientConfig?.["caBundle"] === undefined && hasSameWebhook(file, live);
  if (!isKept) return { conversion };
  const webhook = { ...objectIn(conversion["webhook"]), clientConfig: { ...clientConfig, caBundle } };
  return { conversion: { ...conversion, webhook } };
}

/** Whether a file has a webhook convert the objects that does not do so yet. */
export function bringsOtherWebhook(file: CrdManifest, live: Crd): boolean {
  return bringsWebhook(file) && !hasSameWebhook(file, live);
}

/** Whether the webhook that a file names converts the objects already. */
function hasSameWebhook(file: CrdManifest, live: Crd): boolean {
  const [wanted, known] = [clientConfigIn(file.spec["conversion"]), clientConfigIn(live.spec.conversion)];
  return wanted !== undefined && known !== undefined && webhookAddress(wanted) === webhookAddress(known);
}

function webhookAddress(clientConfig: JsonObject): string {
  const { name, namespace } = objectIn(clientConfig["service"]) ?? {};
  return JSON.stringify([clientConfig["url"], namespace, name]);
}

function clientConfigIn(conversion: unknown): JsonObject | undefined {
  return objectIn(objectIn(objectIn(conversion)?.["webhook"])?.["clientConfig"]);
}

/** The webhook of a `spec.conversion` and where it is, in words. */
export function webhookText(conversion: unknown): string {
  const config = clientConfigIn(conversion);
  const { name, namespace } = objectIn(config?.["service"]) ?? {};
  const where = name === undefined ? textIn(config?.["url"]) : `Service ${textIn(namespace)}/${textIn(name)}`;
  return where === undefined ? "what converts them" : `the conversion webhook (${where})`;
}
