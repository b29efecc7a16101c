import type { CustomResourceDefinition } from "../../api/crd.ts";
import { type JsonObject, objectIn } from "../../api/json-fields.ts";

/**
 * The default of `--settle`: a request that was under way when the storage version changed may land, in the old
 * version, up to the API server's `--request-timeout` (60 s by default) later. Five seconds on top for clocks.
 */
export const DEFAULT_SETTLE_MS = 65_000;

/** The default of `--shutdown-delay`, in milliseconds: that of the kube-apiserver's `--shutdown-delay-duration`. */
export const DEFAULT_SHUTDOWN_DELAY_MS = 0;

/** What a user does where a run ends because of an API server: the next process knows nothing of it. Begins in the middle of a sentence. */
export function pauseAdvice(settleMs: number): string {
  return `wait ${Math.ceil(settleMs / 1_000)} s before you run it again`;
}

/** Times in the API are cut to the second: the true time may be this much later. */
const API_TIME_RESOLUTION_MS = 1_000;

/** What of a CRD tells when it changed. */
type Stamped = Pick<CustomResourceDefinition, "metadata">;

/** The clock of an API server that stamped a change may have been this far behind, in milliseconds. */
export const STAMP_MARGIN_MS = 900_000;

/**
 * When `spec.versions` last changed, in milliseconds since the Unix epoch: the newest of the creation and the
 * managedFields entries that own it. `undefined` means that it cannot be told, so it may have been just now.
 */
export function lastVersionsChangeOf(crd: Stamped): number | undefined {
  return lastChangeOf(crd, ownsVersions);
}

/**
 * The same of all that decides in which shape an object is stored: `spec.versions` and `spec.conversion`, but for the `caBundle` of its
 * webhook, which is replaced with each certificate. An API server that is behind a change of the conversion converts as before: with the
 * strategy None it changes the `apiVersion`, and drops each field that the schema of the other version does not have.
 */
export function lastStorageChangeOf(crd: Stamped): number | undefined {
  // Where no entry owns the versions, none tells who changed the rest either.
  return lastVersionsChangeOf(crd) === undefined
    ? undefined
    : lastChangeOf(crd, (fields) => ownsVersions(fields) || ownsConversion(fields));
}

function lastChangeOf(
  { metadata: { creationTimestamp, managedFields = [] } }: Stamped,
  owns: (fields: JsonObject | undefined) => boolean,
): number | undefined {
  const entries = managedFields.filter(({ fieldsV1, subresource }) => subresource === undefined && owns(fieldsV1));
  if (entries.length === 0) {
    return undefined;
  }
  const times = [creationTimestamp, ...entries.map(({ time }) => time)].map((time) => Date.parse(time ?? ""));
  return times.some(Number.isNaN) ? undefined : Math.max(...times);
}

/**
 * The last change as {@link lastStorageChangeOf} has it: its stamp, and a key that no other change has. The generation tells apart two
 * changes that have the same time: the API server raises it with every change of spec, and no client can set it.
 */
export function storageChangeOf(crd: Stamped): { readonly key: string; readonly at: number | undefined } {
  const at = lastStorageChangeOf(crd);
  return { key: ["crd", crd.metadata.uid, crd.metadata.generation, at].join(" "), at };
}

function ownsVersions(fields: JsonObject | undefined): boolean {
  return Object.hasOwn(objectIn(fields?.["f:spec"]) ?? {}, "f:versions");
}

/** All that the injector of a certificate owns of `spec.conversion`. */
const BUNDLE_PATH = ["f:webhook", "f:clientConfig", "f:caBundle"] as const;

function ownsConversion(fields: JsonObject | undefined): boolean {
  let owned = objectIn(objectIn(fields?.["f:spec"])?.["f:conversion"]);
  for (const name of BUNDLE_PATH) {
    // "." says that the field itself is there, as it does where nothing is below it: all in it have owners of their own.
    if (Object.keys(owned ?? {}).some((other) => other !== name && other !== ".")) {
      return true;
    }
    owned = objectIn(owned?.[name]);
  }
  return false;
}

/** A change that an API server may still be catching up with. */
export interface SeenChange {
  /**
   * When it was, by the clock of the API server that stamped it, in milliseconds since the Unix epoch. `undefined` where no stamp
   * tells: the whole settle time is waited then.
   */
  readonly at: number | undefined;
  /** When this process had the first answer that shows it, on its monotonic clock, in milliseconds. */
  readonly seenAt: number;
}

/** What {@link settleRemainingMs} depends on. */
export interface SettleInput {
  readonly settleMs: number;
  /** The API server's clock, cut to the second as its `Date` header is, in milliseconds since the Unix epoch. */
  readonly serverNow: number;
  /** This process's clock of the day, in milliseconds since the Unix epoch. */
  readonly localNow: number;
  /** This process's monotonic clock, in milliseconds. */
  readonly now: number;
  readonly changes: readonly SeenChange[];
}

/**
 * Milliseconds that are left until every late write of an old version must have landed; 0 where that is so.
 *
 * One bound is sound: `settleMs` after the first answer that shows the change, by the monotonic clock of this process, since
 * what an answer shows happened before that answer. A stamp may be wrong: an API server whose clock was behind makes a change
 * look old, and by the time of a run that clock may be right, or its API server gone. The clock of an API server that answers
 * may be ahead, and a proxy may send any `Date`. So a stamp ends the wait only where it is older than `settleMs` by
 * {@link STAMP_MARGIN_MS}, by the clock of the API server and by the local one. A clock that is behind costs `settleMs` at most.
 */
export function settleRemainingMs({ settleMs, serverNow, localNow, now, changes }: SettleInput): number {
  const waitMs = API_TIME_RESOLUTION_MS + settleMs;
  const believedUntil = Math.min(serverNow, localNow) - waitMs - STAMP_MARGIN_MS;
  const left = changes.map(({ at, seenAt }) => (at !== undefined && at <= believedUntil ? 0 : seenAt - now + waitMs));
  return Math.ceil(Math.max(0, ...left));
}
