import {
  countIn,
  isAbsent,
  type JsonObject,
  listIn,
  objectIn,
  textIn,
  timeIn,
  withoutUndefined,
} from "./json-fields.ts";
import {
  type GroupVersionResource,
  KSTATUS_CONDITIONS,
  MIGRATION_API_VERSION,
  MIGRATION_STATES,
  type MigrationCondition,
  type MigrationCounts,
  type MigrationFailure,
  type MigrationStatus,
  type StorageVersionMigration,
} from "./migration.ts";
import { metaIn, type Parsed, unreadable } from "./parse-meta.ts";

/** The status may hold a hundred, as our CRD says. */
const MAX_FAILURES = 100;
/** Characters of a condition, as those of metav1.Condition. */
const MAX_REASON_LENGTH = 1_024;
/** Characters of a message that are read, as those of metav1.Condition. */
const MAX_MESSAGE_LENGTH = 32_768;
/** Characters of a continue token that the controller writes down, as in our CRD: those of etcd have some hundreds. */
export const MAX_TOKEN_LENGTH = 16_384;
const MAX_NAME_LENGTH = 253;
const MAX_IGNORED = 8;
const STATUSES = ["True", "False", "Unknown"] as const;
const PROGRESS = /^\d{1,16}\/\d{1,16}$/;
// As in our CRD. Wider than what an API server serves: whether there is such a resource is for discovery to say.
const RESOURCE_NAME = /^[A-Za-z0-9][-A-Za-z0-9_]*$/;
const GROUP_NAME = /^[A-Za-z0-9][-A-Za-z0-9_.]*$/;

/**
 * Reads a StorageVersionMigration that came from an API server. Our CRD guarantees its shape only if the object was
 * stored under that very schema: another version of the CRD, or one of another project, may have let anything pass.
 *
 * What its user asks for (`spec`) is taken as a whole or not at all: an object whose spec cannot be read is unreadable.
 * Of the status, which the controller writes again, each field that cannot be read counts as never written.
 */
export function parseMigration(value: unknown): Parsed<StorageVersionMigration> {
  const fields = objectIn(value) ?? {};
  const metadata = metaIn(fields["metadata"]);
  if (metadata === undefined) {
    return unreadable(value, "metadata has no valid name, uid and resourceVersion");
  }
  const spec = specIn(fields["spec"]);
  if (typeof spec === "string") {
    return unreadable(value, spec);
  }
  const ignored: string[] = [];
  const status = statusIn(fields["status"], (path) => ignored.push(path));
  const object = {
    apiVersion: MIGRATION_API_VERSION,
    kind: "StorageVersionMigration",
    metadata,
    spec,
    ...(status === undefined ? {} : { status }),
  };
  return { uid: metadata.uid, object, ignored: ignored.slice(0, MAX_IGNORED) };
}

/** @returns what is wrong with it, in words, where it cannot be read */
function specIn(value: unknown): StorageVersionMigration["spec"] | string {
  const spec = objectIn(value);
  if (spec === undefined) {
    return isAbsent(value) ? "spec is missing" : "spec is no object";
  }
  const resource = resourceIn(spec["resource"]);
  if (typeof resource === "string") {
    return resource;
  }
  const { suspend } = spec;
  if (!isAbsent(suspend) && typeof suspend !== "boolean") {
    // It may stand for a user's wish to stop it, so that it is not begun.
    return "spec.suspend is neither true nor false";
  }
  const continueToken = textIn(spec["continueToken"]);
  const ttlSecondsAfterFinished = countIn(spec["ttlSecondsAfterFinished"]);
  return {
    resource,
    ...(continueToken === undefined ? {} : { continueToken }),
    ...(isAbsent(suspend) ? {} : { suspend }),
    ...(ttlSecondsAfterFinished === undefined ? {} : { ttlSecondsAfterFinished }),
  };
}

function resourceIn(value: unknown): GroupVersionResource | string {
  const fields = objectIn(value);
  if (fields === undefined) {
    return isAbsent(value) ? "spec.resource is missing" : "spec.resource is no object";
  }
  const resource = nameIn(fields["resource"], RESOURCE_NAME);
  if (resource === undefined) {
    return "spec.resource.resource is not the plural of a resource";
  }
  const group = isAbsent(fields["group"]) || fields["group"] === "" ? "" : nameIn(fields["group"], GROUP_NAME);
  return group === undefined
    ? "spec.resource.group is not the name of an API group"
    : { group, version: textIn(fields["version"]) ?? "", resource };
}

/** Names become parts of paths, and of texts on a terminal. */
function nameIn(value: unknown, pattern: RegExp): string | undefined {
  const text = textIn(value);
  return text !== undefined && text.length <= MAX_NAME_LENGTH && pattern.test(text) ? text : undefined;
}

type OnIgnored = (path: string) => void;

function statusIn(value: unknown, onIgnored: OnIgnored): MigrationStatus | undefined {
  if (isAbsent(value)) {
    return undefined;
  }
  const fields = objectIn(value);
  if (fields === undefined) {
    onIgnored("status");
    return undefined;
  }
  const read = <T>(field: string, reader: (value: unknown) => T | undefined): T | undefined => {
    const result = reader(fields[field]);
    if (result === undefined && !isAbsent(fields[field])) {
      onIgnored(`status.${field}`);
    }
    return result;
  };
  return withoutUndefined<MigrationStatus>({
    observedGeneration: read("observedGeneration", generationIn),
    conditions: conditionsIn(fields["conditions"], onIgnored),
    failures: failuresIn(fields["failures"], onIgnored),
    crd: read("crd", (one) => textIn(one, MAX_NAME_LENGTH)),
    progress: read("progress", progressIn),
    counts: read("counts", countsIn),
    startTime: read("startTime", timeIn),
    completionTime: read("completionTime", timeIn),
  });
}

function progressIn(value: unknown): string | undefined {
  const text = textIn(value);
  return text !== undefined && PROGRESS.test(text) ? text : undefined;
}

function generationIn(value: unknown): number | undefined {
  return value === -1 ? value : countIn(value);
}

function countsIn(value: unknown): MigrationCounts | undefined {
  const fields = objectIn(value) ?? {};
  const [migrated, skipped, failed] = ["migrated", "skipped", "failed"].map((field) => countIn(fields[field]));
  if (migrated === undefined || skipped === undefined || failed === undefined) {
    return undefined;
  }
  const remaining = countIn(fields["remaining"]);
  return { migrated, skipped, failed, ...(remaining === undefined ? {} : { remaining }) };
}

/** Each type once: the entry that is True, else the first. One that has both succeeded and failed has failed. */
function conditionsIn(value: unknown, onIgnored: OnIgnored): readonly MigrationCondition[] | undefined {
  const byType = new Map<string, MigrationCondition>();
  for (const [index, entry] of entriesOf(value, "status.conditions", onIgnored).entries()) {
    const condition = conditionIn(entry);
    if (condition === undefined) {
      onIgnored(`status.conditions[${index}]`);
    } else if (condition !== "of another type" && isBetter(condition, byType.get(condition.type))) {
      byType.set(condition.type, condition);
    }
  }
  if (byType.get("Failed")?.status === "True" && byType.get("Succeeded")?.status === "True") {
    onIgnored("status.conditions");
    byType.delete("Succeeded");
  }
  return isAbsent(value) ? undefined : [...byType.values()];
}

function isBetter(condition: MigrationCondition, known: MigrationCondition | undefined): boolean {
  return known === undefined || (condition.status === "True" && known.status !== "True");
}

/**
 * `undefined` where it cannot be read. Types that this program does not know are of other projects, or of the future.
 */
function conditionIn(value: unknown): MigrationCondition | "of another type" | undefined {
  const fields = objectIn(value);
  const type = textIn(fields?.["type"]);
  if (fields === undefined || type === undefined) {
    return undefined;
  }
  const known = [...MIGRATION_STATES, ...KSTATUS_CONDITIONS].find((one) => one === type);
  if (known === undefined) {
    return "of another type";
  }
  const status = STATUSES.find((one) => one === fields["status"]);
  return status === undefined ? undefined : { type: known, status, ...detailsIn(fields) };
}

type ConditionDetails = Pick<MigrationCondition, "lastUpdateTime" | "reason" | "message">;

function detailsIn(fields: JsonObject): ConditionDetails {
  return withoutUndefined<ConditionDetails>({
    lastUpdateTime: timeIn(fields["lastUpdateTime"]),
    reason: textIn(fields["reason"], MAX_REASON_LENGTH),
    message: textIn(fields["message"], MAX_MESSAGE_LENGTH),
  });
}

function failuresIn(value: unknown, onIgnored: OnIgnored): readonly MigrationFailure[] | undefined {
  const entries = entriesOf(value, "status.failures", onIgnored).slice(0, MAX_FAILURES);
  const failures = entries.flatMap((entry, index) => {
    const fields = objectIn(entry) ?? {};
    const [name, reason, namespace] = [textIn(fields["name"]), textIn(fields["reason"]), textIn(fields["namespace"])];
    if (name === undefined || reason === undefined) {
      onIgnored(`status.failures[${index}]`);
      return [];
    }
    return [{ name, reason, ...(namespace === undefined ? {} : { namespace }) }];
  });
  return isAbsent(value) ? undefined : failures;
}

function entriesOf(value: unknown, path: string, onIgnored: OnIgnored): readonly unknown[] {
  if (!isAbsent(value) && !Array.isArray(value)) {
    onIgnored(path);
  }
  return listIn(value);
}
