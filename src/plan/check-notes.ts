import { type CustomResourceDefinition, movesFields, storageVersionOf, storedVersionsOf } from "../api/crd.ts";
import type { CheckFacts, ListedObjects } from "./check-types.ts";
import { conversionOf, hasWebhookOf, webhookTextOf } from "./conversion-webhook.ts";
import type { CrdManifest } from "./crd-manifests.ts";
import { type FieldVersions, fieldVersionsText } from "./field-versions.ts";
import { notInStoredVersions } from "../in-tree/prune-doubt.ts";
import { lastPruneOf } from "./last-prune.ts";
import { unservedTextOf } from "./listed-objects.ts";
import { droppedFieldsOf } from "./dropped-fields.ts";
import {
  hasVersion,
  losesConversion,
  outgoingOf,
  outgoingVersionsOf,
  removedVersionsOf,
  strategyOf,
  targetVersionOf,
  unlistedVersionsOf,
} from "./version-changes.ts";

/** What there is to know of a file besides its verdict, and what cannot be known. */
export function notesOf(
  manifest: CrdManifest,
  { failedInTree, live, managedFields, objects }: CheckFacts,
): readonly string[] {
  if (live === undefined) {
    return unservedNotes(manifest);
  }
  const unlisted = unlistedVersionsOf(manifest, live);
  const lost = objects?.unreadableIn;
  const isFound = lost !== undefined && hasVersion(manifest, lost);
  return [
    ...unservedNotes(manifest),
    ...flipNotes(manifest, storageVersionOf(live)),
    ...webhookNotes(manifest, live, objects),
    ...(unlisted.length > 0 ? [unprovenText(manifest.name, unlisted, live)] : []),
    ...(isFound ? [foundText(manifest.name, lost)] : []),
    ...unlistedNotes(manifest, live, objects),
    ...(hasStaleFields(managedFields) ? [fieldsText(manifest, managedFields, live)] : []),
    ...lossNotesOf(manifest, live),
    ...(failedInTree === undefined ? unseenNotes(manifest, live) : []),
  ];
}

/** What objects and their clients lose with a file, whatever is migrated before. */
export function lossNotesOf(manifest: CrdManifest, live: CustomResourceDefinition | undefined): readonly string[] {
  return live === undefined ? [] : [...droppedNotes(manifest, live), ...conversionNotes(manifest, live)];
}

/** Whether there are managedFields that name a version which the file does not have. */
export function hasStaleFields(managedFields: FieldVersions | undefined): managedFields is FieldVersions {
  return (managedFields?.objects ?? 0) > 0;
}

function fieldsText(manifest: CrdManifest, managedFields: FieldVersions, live: CustomResourceDefinition): string {
  const remedy = movesFields(live)
    ? "a webhook converts the objects, so only their own clients can change that, by an apply in another version before"
    : outgoingVersionsOf(manifest, live).length > 0
      ? "the migration has them name the storage version"
      : `run ksvm migrate ${manifest.name} --force before`;
  return (
    `${fieldVersionsText(managedFields)}, and server-side apply of those fails once no such version is there ` +
    `(kubernetes#111937): ${remedy}`
  );
}

function flipNotes(manifest: CrdManifest, storage: string): readonly string[] {
  const target = targetVersionOf(manifest);
  const isFlip = target !== undefined && target !== storage && hasVersion(manifest, storage);
  return isFlip
    ? [
        `it changes the storage version from ${storage} to ${target}: objects stay stored in ${storage} until ksvm migrate`,
      ]
    : [];
}

/** A webhook that the file brings, and that has objects to convert at once. */
function webhookNotes(
  manifest: CrdManifest,
  live: CustomResourceDefinition,
  objects: ListedObjects | undefined,
): readonly string[] {
  const isNeeded = strategyOf(manifest) === "Webhook" && !hasWebhookOf(manifest, live) && converts(manifest, live);
  if (!isNeeded || objects?.count === 0) {
    return [];
  }
  const remedy = isAwaited(manifest, live)
    ? `ksvm migrate -f FILE --apply waits for it before anything is stored in ${targetVersionOf(manifest) ?? ""}`
    : "start it before this file is applied";
  return [
    `it has ${webhookTextOf(conversionOf(manifest))} convert the objects, which the CRD does not call yet: until that answers, no client ` +
      `reads or writes an object in another version than it is stored in; ${remedy}`,
  ];
}

/** Whether a version is served that is not that of every object, of those that there are and those to come. */
function converts(manifest: CrdManifest, live: CustomResourceDefinition): boolean {
  const stored = new Set([...storedVersionsOf(live), targetVersionOf(manifest)]);
  return manifest.versions.some(({ name, served }) => served && [...stored].some((version) => version !== name));
}

/**
 * Whether objects have to be readable by the webhook of the file before `ksvm migrate -f --apply` makes its storage
 * version that of the CRD.
 */
function isAwaited(manifest: CrdManifest, live: CustomResourceDefinition): boolean {
  const storage = storageVersionOf(live);
  const target = manifest.versions.find((version) => version.storage);
  const isNew = live.spec.versions.every(({ name }) => name !== target?.name);
  return target?.served === true && target.name !== storage && (isNew || hasVersion(manifest, storage));
}

/** Where the file drops a version, or brings a lost one back, the verdict or another note is about it. */
function unlistedNotes(
  manifest: CrdManifest,
  live: CustomResourceDefinition,
  { problem = unservedTextOf(live), unreadableIn }: ListedObjects = {},
): readonly string[] {
  const isTold = unreadableIn !== undefined || removedVersionsOf(manifest, live).length > 0;
  return isTold || problem === undefined
    ? []
    : [`its objects cannot be listed now, so it is not known whether each of them can be read: ${problem}`];
}

function foundText(name: string, version: string): string {
  return (
    `it brings ${version} back, in which objects are stored that no client can read now; storedVersions does not list it: ` +
    `run ksvm migrate ${name} --force before ${version} is dropped again`
  );
}

/** The API does not show in which version an object is stored; storedVersions is what was once concluded about it. */
function unprovenText(name: string, versions: readonly string[], live: CustomResourceDefinition): string {
  const prune = lastPruneOf(live);
  const by = prune === undefined ? "" : ` (${prune.manager} wrote it last, at ${prune.time})`;
  return (
    `that no object is stored in ${versions.join(", ")} rests on storedVersions alone${by}: the API does not show in which ` +
    `version an object is stored; to be sure, run ksvm migrate --force ${name} before you apply the file`
  );
}

/** As many fields as a line has room for. */
const NAMED_FIELDS = 5;

function droppedNotes(manifest: CrdManifest, live: CustomResourceDefinition): readonly string[] {
  const fields = droppedFieldsOf(manifest, live);
  if (fields.length === 0) {
    return [];
  }
  const named = fields.slice(0, NAMED_FIELDS).map(({ path, versions }) => `${path} (${versions.join(", ")})`);
  const rest = fields.length > NAMED_FIELDS ? ` and ${fields.length - NAMED_FIELDS} more` : "";
  return [
    `the schema of ${targetVersionOf(manifest) ?? ""} in this file does not have ${named.join(", ")}${rest}: no client reads such a field any ` +
      "more, and the next write of an object, a migration too, drops it for good",
  ];
}

function conversionNotes(manifest: CrdManifest, live: CustomResourceDefinition): readonly string[] {
  const target = targetVersionOf(manifest) ?? "";
  const others = manifest.versions.filter(({ name, served }) => served && name !== target).map(({ name }) => name);
  return losesConversion(manifest, live) && others.length > 0
    ? [
        `this file has no conversion webhook, and serves ${others.join(", ")} beside ${target}: clients of ${others.join(", ")} get what is stored ` +
          `as ${target}, with another apiVersion`,
      ]
    : [];
}

function unservedNotes({ versions }: CrdManifest): readonly string[] {
  return versions.length > 0 && versions.every(({ served }) => !served)
    ? ["this file serves no version: no client can read or write the objects"]
    : [];
}

/**
 * A migration that failed, and that nobody saw, may have taken a version out of storedVersions in which no object may
 * stay.
 */
function unseenNotes(manifest: CrdManifest, live: CustomResourceDefinition): readonly string[] {
  const versions = outgoingOf(manifest, live, notInStoredVersions(live)).join(", ");
  return versions === ""
    ? []
    : [
        "this user may not list storageversionmigrations.storagemigration.k8s.io: it is not known whether a migration of Kubernetes' own " +
          `migrator failed; one that does takes ${versions} out of storedVersions although objects are still stored in it`,
      ];
}
