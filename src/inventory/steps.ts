import { isDeepStrictEqual } from "node:util";
import type { V1CustomResourceConversion, V1CustomResourceDefinitionVersion } from "@kubernetes/client-node";
import { type JsonObject, objectIn, textIn } from "../api/json-fields.ts";
import { droppedFields, example, schemaOf } from "../api/pruned-fields.ts";
import { epochOf } from "../apiservers/converge.ts";
import { freezerOf } from "../freeze/freeze.ts";
import { CRD_FIELD_MANAGER, MIGRATING } from "../freeze/rule.ts";
import { type Crd, hasConversionWebhook, storageVersion } from "../kube/objects.ts";
import { crdProblem, lostVersions, pruneDoubt, storedVersionsOwner } from "../migrator/crd-state.ts";

/** A CRD as a file has it. */
export interface CrdManifest {
  readonly name: string;
  readonly source: string;
  /** `apiextensions.k8s.io/v1`, or an older version. */
  readonly apiVersion: string;
  readonly labels: JsonObject;
  readonly annotations: JsonObject;
  readonly spec: JsonObject;
  /** `spec.versions`, as far as they have names: the API server judges the rest. */
  readonly versions: readonly V1CustomResourceDefinitionVersion[];
  /** The storage version; empty where there is not exactly one, which the API server refuses. */
  readonly target: string;
}

/** One step from the CRD of the cluster to that of a file. Field names are those of `-o json`. */
export interface Step {
  /**
   * - `serve`: has the file's storage version served beside the others, and tries a write of every object in it
   * - `flip`: makes it the storage version, and keeps the others
   * - `migrate`: rewrites every object and prunes storedVersions
   * - `apply`: writes what the file says
   */
  readonly kind: "serve" | "flip" | "migrate" | "apply";
  readonly does: string;
  readonly why: string;
  /** `spec` of the CRD as the step writes it. Missing where it writes none. */
  readonly spec?: JsonObject;
}

/** What leads to a file, or why nothing does. Field names are those of `-o json`. */
export interface Route {
  /**
   * - `applicable`: any client can apply the file as it is; ksvm rewrites objects first where there are steps for it
   * - `needs-migration`: objects may be stored in a version that it drops, narrows, or has no conversion for
   * - `refused`: there is no way
   * - `data-loss`: objects are stored in a version that the CRD lacks. Fields that are lost are no verdict, but notes
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
  /** Whether no object has a field that the file's schemas lack. */
  readonly isLossless?: boolean | undefined;
  /** Whether managedFields of objects name versions that leave or are gone: a migration ends that. */
  readonly hasGoneFields?: boolean | undefined;
  /** The `uid/generation` of the CRD at which this run tried every object in the file's storage version. */
  readonly tried?: string | undefined;
  /** The `uid/generation` of the CRD at which this run rewrote every object. */
  readonly rewritten?: string | undefined;
}

const CRD_API_VERSION = "apiextensions.k8s.io/v1";

/**
 * The steps that are left between the CRD of the cluster and a file. Everything else follows from them: what `check -f`
 * says, and what `migrate -f` does. What was written is in the CRD, so that after a kill at any point they go on there.
 *
 * No version is dropped before this run of ksvm has rewritten every object: after a kill it does all of that again. What
 * storedVersions says is no proof, since other clients write it, too.
 *
 * @param live missing where the cluster has no such CRD
 */
export function steps(
  live: Crd | undefined,
  file: CrdManifest,
  { hasGoneFields = false, isLossless, lostIn, rewritten, tried }: Facts,
): Route {
  const { apiVersion, name, target } = file;
  if (apiVersion !== CRD_API_VERSION) {
    const help = `write the file for ${CRD_API_VERSION}: each entry of spec.versions needs a schema of its own`;
    return noWay(`${apiVersion} is not served since Kubernetes 1.22`, help);
  }
  if (target === "") return noWay("it has no storage version", "have exactly one of spec.versions say storage: true");
  if (live === undefined) return applicable("the cluster has no such CRD", [applyStep(file.spec)]);

  const { storedVersions = [] } = live.status ?? {};
  // No object must be left in these when the file is applied, whether or not storedVersions lists them.
  const outgoing = [...new Set([...storedVersions, ...live.spec.versions.map((version) => version.name)])].filter(
    (version) =>
      isLeaving(live, file, version) || (version !== target && isNarrowed(live.spec.versions, file.versions, version)),
  );
  const names = outgoing.join(", ");
  const isMove = target !== storageVersion(live);

  const problem = crdProblem(live);
  // A file that drops nothing may itself repair the CRD, as by serving a version again. Unless it is known that no
  // object loses a field, preserveUnknownFields counts as kept, and the file is refused. The API server judges schemas.
  const preserveUnknownFields = isLossless !== true && live.spec.preserveUnknownFields === true;
  const conditions = (live.status?.conditions ?? []).filter(({ type }) => type !== "NonStructuralSchema");
  const conversion = (file.spec["conversion"] ?? { strategy: "None" }) as V1CustomResourceConversion;
  const after = {
    ...live,
    spec: { ...plain(live.spec), conversion, preserveUnknownFields, versions: [...file.versions] },
    status: { conditions, storedVersions: storedVersions.filter((version) => hasVersion(file, version)) },
  };
  const caused = crdProblem(after);
  const isUnwritable = isMove && lostVersions(live).length > 0;
  if (problem && (outgoing.length > 0 || isUnwritable || caused)) return noWay(problem.reason, problem.help);
  if (caused) return noWay(`with this file ${caused.reason}`, "change that in this file");
  if (lostIn !== undefined && (!hasVersion(file, lostIn) || isMove || outgoing.length > 0)) {
    const reason = `objects are stored in ${lostIn}, which the CRD lacks: no client can read or rewrite them`;
    const help = [`bring them back: ksvm doctor ${name} --repair`, "then apply this file"];
    return { verdict: "data-loss", reason, help, steps: [] };
  }
  const isFrozenByOther = freezerOf(live.metadata) === "other";
  if ((isMove || outgoing.length > 0) && isFrozenByOther) {
    const reason = `its storage version is frozen by something other than ksvm (annotation ${MIGRATING})`;
    return noWay(reason, `wait for it to end, or lift the freeze: kubectl annotate crd ${name} ${MIGRATING}-`);
  }
  if (losesWebhook(live, file) && live.spec.versions.every((version) => version.name !== target)) {
    const reason = `a conversion webhook converts the objects, and this file, which brings ${target}, has none`;
    return noWay(reason, `keep a webhook that knows ${target} in this file, and leave it out in the next one`);
  }

  // A problem that such a file ends by its serve step, such as a storage version that is not served, is none by then.
  const isRewrite = outgoing.length > 0 || (hasGoneFields && (problem === undefined || isMove) && !isFrozenByOther);
  // The storage version moves in a step of its own, so that objects are rewritten in it before the file is applied.
  const isFlip = isMove && isRewrite;
  // A rewrite drops what the schema of its version lacks: a wider one comes first.
  const isServe = isMove || (isRewrite && isNarrowed(file.versions, live.spec.versions, target));
  const serve = isServe && tried !== epochOf(live) ? serveStep(live, file) : undefined;
  const left = [
    ...(serve === undefined ? [] : [serve]),
    ...(isFlip ? [flipStep(live, file, serve?.spec ?? plain(live.spec))] : []),
    ...(isRewrite && rewritten !== epochOf(live) ? [migrateStep(file, names)] : []),
    applyStep({ ...file.spec, ...conversionOf(file, live) }),
  ];
  if (outgoing.length === 0) return applicable("it keeps every version of the CRD", left);
  const dropped = outgoing.filter((version) => !hasVersion(file, version)).join(", ");
  const unconverted = `it has no conversion webhook, so that nothing would convert ${names} to ${target}`;
  const keptReason = losesWebhook(live, file) ? unconverted : `its schema of ${names} lacks fields that the CRD has`;
  const what = dropped === "" ? keptReason : `it drops ${dropped}`;
  const needs = (why: string): Route => ({
    ...applicable(`${what}, and objects may be stored there${why}`, left),
    verdict: "needs-migration",
  });
  const listed = outgoing.filter((version) => storedVersions.includes(version)).join(", ");
  if (listed !== "") return needs(`: storedVersions lists ${listed}`);
  const owner = storedVersionsOwner(live);
  const unlisted = `storedVersions${owner === undefined ? "" : `, written by ${owner},`} does not list ${names}`;
  const isProven = owner === CRD_FIELD_MANAGER || (owner === undefined && pruneDoubt(live) === undefined);
  const proof = "; only a prune by ksvm proves that no object is stored there";
  return isProven ? applicable(`${what}, and ${unlisted}`, left) : needs(`, although ${unlisted}${proof}`);
}

/** client-node's types are those of classes, and what an API server answers is none. */
export function plain<T extends object>(answered: T): { readonly [Field in keyof T]: T[Field] } {
  return answered;
}

/** Whether a file drops a version, or keeps it beside its storage version where nothing converts any more. */
export function isLeaving(live: Crd, file: CrdManifest, version: string): boolean {
  return !hasVersion(file, version) || (losesWebhook(live, file) && version !== file.target);
}

function losesWebhook(live: Crd, file: CrdManifest): boolean {
  return hasConversionWebhook(live) && webhookOf(file.spec["conversion"]) === undefined;
}

/** Whether the schema of a version lacks fields of another one: an API server prunes what is stored in it. */
function isNarrowed(from: CrdManifest["versions"], to: CrdManifest["versions"], version: string): boolean {
  const [now, next] = [from, to].map((all) => schemaOf(all.find(({ name }) => name === version)));
  return droppedFields(next, example(now ?? {}, next), true).length > 0;
}

/** Whether a file has a version. */
export function hasVersion({ versions }: CrdManifest, name: string): boolean {
  return versions.some((version) => version.name === name);
}

function noWay(reason: string, help: string): Route {
  return { verdict: "refused", reason, help: [help], steps: [] };
}

function applicable(reason: string, all: readonly Step[]): Route {
  return { verdict: "applicable", reason, help: [], steps: all };
}

/** Nothing is stored in a version before every object was tried in it: later there is no way back. */
function serveStep(live: Crd, file: CrdManifest): Step {
  const { target } = file;
  const known = live.spec.versions.find(({ name }) => name === target);
  const wanted = file.versions.find(({ name }) => name === target);
  const isLeft = live.spec.versions.some(({ name }) => isLeaving(live, file, name));
  // The file's webhook may not know a version that leaves. Then the conversion of now stays, if it knows the target.
  const { conversion = live.spec.conversion } = known !== undefined && isLeft ? {} : conversionOf(file, live);
  const isServed =
    known?.served === true &&
    isDeepStrictEqual(known.schema, wanted?.schema) &&
    webhookOf(conversion) === webhookOf(live.spec.conversion);
  const tries = `tries to write every object in ${target} by a dry run`;
  const why = "each object has to be accepted in it before more is changed";
  if (isServed) return { kind: "serve", does: tries, why };
  const spec = { ...plain(live.spec), conversion, versions: versionsWith(live, file, storageVersion(live)) };
  return { kind: "serve", does: `serves ${target} as the file has it beside the others, and ${tries}`, why, spec };
}

/** @param spec as the step before leaves it */
function flipStep(live: Crd, file: CrdManifest, spec: object): Step {
  const { target } = file;
  return {
    kind: "flip",
    does: `makes ${target} the storage version, and keeps the others`,
    why: "from then on what is written is stored in it",
    spec: { ...spec, versions: versionsWith(live, file, target) },
  };
}

/** The versions of the CRD, and the target as the file has it. Served are this and the storage version in any case. */
function versionsWith(live: Crd, file: CrdManifest, storage: string): readonly object[] {
  const others = live.spec.versions.filter(({ name }) => name !== file.target);
  const wanted = file.versions.filter(({ name }) => name === file.target);
  const isNeeded = (name: string): boolean => name === file.target || name === storageVersion(live);
  return [...others, ...wanted].map((version) => {
    const { name, served } = version;
    return { ...plain(version), served: served || isNeeded(name), storage: name === storage };
  });
}

function migrateStep({ name, target }: CrdManifest, outgoing: string): Step {
  return {
    kind: "migrate",
    does: `rewrites every object in ${target} and prunes storedVersions to it, as ksvm migrate ${name} --force does`,
    why:
      outgoing === ""
        ? "managedFields of objects name versions that are gone, so that no client can apply these objects"
        : `objects may be stored in ${outgoing}, whatever storedVersions says`,
  };
}

function applyStep(spec: JsonObject): Step {
  return { kind: "apply", does: "writes what the file says", why: "no object is stored in what it drops", spec };
}

/** `spec.conversion` of the file, with the CA bundle that another client put into the CRD for the same webhook. */
function conversionOf(file: CrdManifest, live: Crd): { readonly conversion?: unknown } {
  const conversion = objectIn(file.spec["conversion"]);
  const wanted = clientConfigIn(conversion);
  if (wanted === undefined || bringsOtherWebhook(file, live)) return conversion === undefined ? {} : { conversion };
  const clientConfig = { caBundle: clientConfigIn(live.spec.conversion)?.["caBundle"], ...wanted };
  return { conversion: { ...conversion, webhook: { ...objectIn(conversion?.["webhook"]), clientConfig } } };
}

/** Whether a file has a webhook convert the objects that does not do so yet. */
export function bringsOtherWebhook(file: CrdManifest, live: Crd): boolean {
  const webhook = webhookOf(file.spec["conversion"]);
  return webhook !== undefined && webhook !== webhookOf(live.spec.conversion);
}

/** Where the webhook of a `spec.conversion` is; `undefined` where none converts. */
export function webhookOf(conversion: unknown): string | undefined {
  const { service, url } = clientConfigIn(conversion) ?? {};
  const { name, namespace, path = "/", port = 443 } = objectIn(service) ?? {};
  const at = `${port === 443 ? "" : `:${String(port)}`}${path === "/" ? "" : String(path)}`;
  return name === undefined ? textIn(url) : `Service ${textIn(namespace)}/${textIn(name)}${at}`;
}

function clientConfigIn(conversion: unknown): JsonObject | undefined {
  return objectIn(objectIn(objectIn(conversion)?.["webhook"])?.["clientConfig"]);
}
