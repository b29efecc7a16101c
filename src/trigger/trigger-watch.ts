import { UNKNOWN_HASH } from "../api/migration.ts";
import type { Decision } from "./decide.ts";
import type { Situation } from "./next-status.ts";

/** What a look showed of one resource. */
export interface Looked {
  /** Whether its StorageState says Unknown. */
  readonly isUnknown: boolean;
  /** Whether API servers do not encode it alike. */
  readonly isDisagreement: boolean;
  /** Whether it needs a migration and has none under way. */
  readonly isWaiting: boolean;
  /** How many versions its CRD has in storedVersions beside the storage version. */
  readonly staleVersions: number;
}

/** Watches a trigger, for metrics. */
export interface TriggerWatch {
  /**
   * The trigger began, or looked at everything, which are these resources.
   * @param now milliseconds since the Unix epoch
   */
  polled(now: number, names?: ReadonlySet<string>): void;
  /** What is known of a resource now; `undefined` where nothing looks after it any more. */
  looked(name: string, looked: Looked | undefined): void;
  /** Something is done once more. */
  retried(what: "discovery" | "look" | "migration"): void;
}

/** Watches nothing. */
export const NO_WATCH: TriggerWatch = {
  polled: () => undefined,
  looked: () => undefined,
  retried: () => undefined,
};

/** What is known of a resource once a decision was carried out. */
export function lookedOf({ observed: { crd }, state }: Situation, decision: Decision): Looked {
  const { persisted, current } = decision.status ?? state ?? { persisted: [], current: "" };
  return {
    isUnknown: current === UNKNOWN_HASH || persisted.includes(UNKNOWN_HASH),
    isDisagreement: decision.cause === "disagreement",
    isWaiting: decision.waiting !== undefined,
    staleVersions: crd?.storedHashes.filter((hash) => hash !== crd.hash).length ?? 0,
  };
}
