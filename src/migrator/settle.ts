import type { CustomResourceDefinition } from "../api/crd.ts";

/**
 * The default of `--settle`: a request that was under way when the storage version changed may land, in the old
 * version, up to the API server's `--request-timeout` (60 s by default) later. Five seconds on top for clocks.
 */
export const DEFAULT_SETTLE_MS = 65_000;

/** Times in the API are cut to the second: the true time may be this much later. */
const API_TIME_RESOLUTION_MS = 1_000;

/**
 * When `spec.versions` last changed, in milliseconds since the Unix epoch: the newest of the creation and the
 * managedFields entries that own it. `undefined` means that it cannot be told, so it may have been just now.
 */
export function lastVersionsChangeOf(crd: CustomResourceDefinition): number | undefined {
  const entries = (crd.metadata.managedFields ?? []).filter(
    (entry) => entry.subresource === undefined && ownsVersions(entry.fieldsV1),
  );
  if (entries.length === 0) {
    return undefined;
  }
  const times = [crd.metadata.creationTimestamp, ...entries.map(({ time }) => time)].map((time) =>
    Date.parse(time ?? ""),
  );
  return times.some(Number.isNaN) ? undefined : Math.max(...times);
}

function ownsVersions(fields: Readonly<Record<string, unknown>> | undefined): boolean {
  const spec = fields?.["f:spec"];
  return typeof spec === "object" && spec !== null && Object.hasOwn(spec, "f:versions");
}

/** What {@link settleRemainingMs} goes by; all times are the API server's, in milliseconds since the Unix epoch. */
export interface SettleInput {
  readonly settleMs: number;
  /** The API server's clock, cut to the second as its `Date` header is. */
  readonly serverNow: number;
  /** Every change that an API server may still be catching up with. */
  readonly changes: readonly number[];
}

/** Milliseconds that are left until every late write of an old version must have landed; 0 where that is so. */
export function settleRemainingMs({ settleMs, serverNow, changes }: SettleInput): number {
  if (changes.length === 0) {
    return 0;
  }
  const newest = Math.max(...changes) + API_TIME_RESOLUTION_MS;
  return Math.max(0, newest + settleMs - serverNow);
}
