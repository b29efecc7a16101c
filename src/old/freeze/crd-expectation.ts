import { isDeepStrictEqual } from "node:util";
import {
  conversionBesidesBundle,
  type CustomResourceDefinition,
  servedVersionsOf,
  storageVersionsOf,
} from "../../api/crd.ts";
import type { JsonObject } from "../../api/json-fields.ts";
import { prunedFields, schemaOf } from "../../api/pruned-fields.ts";
import { lostDefaults } from "../../api/schema-defaults.ts";
import { OWNER_ANNOTATION } from "../../api/names.ts";
import { hasFreezeAnnotation } from "../../api/owner.ts";
import { KsvmError } from "../../errors.ts";
import { droppingWrites } from "../../resources/request-resource.ts";
import { StartAgain } from "../retry/start-again.ts";

/** What must stay true of a CRD from the proof of the freeze until storedVersions is pruned. */
export interface CrdExpectation {
  readonly name: string;
  readonly uid: string;
  readonly storageVersion: string;
  /** The version that requests go to. */
  readonly requestVersion: string;
  /** As {@link conversionBesidesBundle} has it. */
  readonly conversion: JsonObject;
  /** The owner annotation of this run, to the letter. */
  readonly owner: string;
}

/**
 * The first expectation that a CRD breaks, as the error that ends the run; `undefined` where all hold. Harmless edits
 * (labels, schemas, a caBundle, a new version) break none. {@link StartAgain} where objects are converted in another way: what one API
 * server still writes in the old way, others write in the new one, until they have settled again.
 */
export function brokenExpectation(expected: CrdExpectation, crd: CustomResourceDefinition): KsvmError | undefined {
  const { name } = expected;
  if (crd.metadata.uid !== expected.uid) {
    return new KsvmError("CrdReplaced", `Cannot continue with "${name}": the CRD was deleted and created again`);
  }
  if (crd.metadata.deletionTimestamp !== undefined) {
    return new KsvmError("CrdReplaced", `Cannot continue with "${name}": the CRD is being deleted`);
  }
  return brokenFreeze(expected, crd) ?? brokenVersions(expected, crd);
}

/** The error for a freeze that another client took off. It is final: no run puts it back. */
export function freezeLifted(crdName: string): KsvmError {
  const text = `Cannot continue with "${crdName}": another client lifted the freeze of its storage version; nothing was pruned`;
  return new KsvmError("FreezeLifted", text);
}

/** The error for a freeze that is not, or no longer, that of the run. One without an owner stays: nothing says whose it is. */
export function ownershipLost({ metadata: { annotations, name } }: CustomResourceDefinition): KsvmError {
  const what =
    annotations?.[OWNER_ANNOTATION] === undefined
      ? `another client removed annotation ${OWNER_ANNOTATION}, and left the freeze; nothing was pruned`
      : "another run took its migration over";
  return new KsvmError("OwnershipLost", `Cannot continue with "${name}": ${what}`);
}

function brokenFreeze(expected: CrdExpectation, crd: CustomResourceDefinition): KsvmError | undefined {
  const { name } = expected;
  if (!hasFreezeAnnotation(crd)) {
    return freezeLifted(name);
  }
  if (crd.metadata.annotations?.[OWNER_ANNOTATION] !== expected.owner) {
    return ownershipLost(crd);
  }
  return undefined;
}

function brokenVersions(expected: CrdExpectation, crd: CustomResourceDefinition): KsvmError | undefined {
  const { conversion, name, storageVersion, requestVersion } = expected;
  const storage = storageVersionsOf(crd).join(",");
  if (storage !== storageVersion) {
    const text = `the storage version changed from "${storageVersion}" to "${storage}" in spite of the freeze`;
    return new KsvmError("StorageVersionChanged", `Cannot continue with "${name}": ${text}; nothing was pruned`);
  }
  if (!servedVersionsOf(crd).includes(requestVersion)) {
    const text = `version "${requestVersion}", which this run reads and writes, is no longer served`;
    return new KsvmError("VersionNotServed", `Cannot continue with "${name}": ${text}; nothing was pruned`);
  }
  const dropping = droppingWrites(crd, requestVersion);
  if (dropping !== undefined) {
    return dropping;
  }
  if (!isDeepStrictEqual(conversionBesidesBundle(crd), conversion)) {
    const text = "its spec.conversion changed, and an API server may still convert objects as before";
    return new StartAgain(
      "ConversionChanged",
      `Cannot continue with "${name}": ${text}; nothing was pruned, run again`,
    );
  }
  return undefined;
}

/**
 * The error where an API server that still follows `followed` would change an object that was written by the schemas of `crd`: it prunes fields that
 * are new, and writes defaults that are gone. `undefined` where it would not. It counts as long as the run may write an object that another client has
 * written since.
 */
export function brokenSchemas(
  followed: CustomResourceDefinition,
  crd: CustomResourceDefinition,
): StartAgain | undefined {
  const { name } = crd.metadata;
  const [before, after] = [followed.spec, crd.spec];
  const keepsMore = after["preserveUnknownFields"] === true && before["preserveUnknownFields"] !== true;
  const [change] = keepsMore
    ? ["it keeps unknown fields now"]
    : before.versions.flatMap((version) => changesOf(version.name, before, after));
  if (change === undefined) {
    return undefined;
  }
  const text = `its schema changed, and an API server that is behind would change objects: ${change}`;
  return new StartAgain("NotConverged", `Cannot continue with "${name}": ${text}; nothing was pruned, run again`);
}

/** Whether API servers keep the same fields and write the same defaults by two CRDs: neither one breaks what {@link brokenSchemas} looks after in the other. */
export function areSchemasAlike(one: CustomResourceDefinition, other: CustomResourceDefinition): boolean {
  const [mine, others] = [one, other].map(({ spec: { versions } }) =>
    versions.map(({ name }) => [name, schemaOf(versions, name) !== undefined].join()).toSorted(),
  );
  const isBroken = brokenSchemas(one, other) ?? brokenSchemas(other, one);
  return isBroken === undefined && isDeepStrictEqual(mine, others);
}

type Spec = CustomResourceDefinition["spec"];

function changesOf(version: string, before: Spec, after: Spec): readonly string[] {
  const [old, now] = [before, after].map(({ versions }) => schemaOf(versions, version));
  return isDeepStrictEqual(old, now)
    ? []
    : [
        ...prunedFields(old, now).map((field) => `${field} is new`),
        ...lostDefaults(old, now).map((field) => `the default of ${field} is another one or gone`),
      ];
}
