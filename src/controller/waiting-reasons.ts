import type { MigrationCondition, MigrationState } from "../api/migration.ts";
import { ERROR_CODES } from "../errors.ts";

/** Beside the codes of errors. Users may write a status, too: any other reason is {@link OTHER}. */
const REASONS: ReadonlySet<string> = new Set([
  ...ERROR_CODES,
  "WaitingForWebhook",
  "WaitingForOthers",
  "InTreeMigration",
  "Queued",
]);
const OTHER = "Other";

/** What a migration tells of itself. */
interface Told {
  readonly state: MigrationState;
  readonly conditions: readonly MigrationCondition[];
}

/** Why migrations wait, or run and get no further: how many there are for each reason. */
export class WaitingReasons {
  readonly #counts = new Map<string, number>();

  /** By reason; none where none waits for it. */
  get counts(): ReadonlyMap<string, number> {
    return this.#counts;
  }

  /** Takes one in, in the place of what was known of it. */
  replace(before: Told | undefined, after: Told | undefined): void {
    this.#add(before, -1);
    this.#add(after, 1);
  }

  #add(migration: Told | undefined, number: number): void {
    const reason = migration === undefined ? undefined : waitingReasonOf(migration);
    if (reason === undefined) {
      return;
    }
    const count = (this.#counts.get(reason) ?? 0) + number;
    if (count > 0) {
      this.#counts.set(reason, count);
    } else {
      this.#counts.delete(reason);
    }
  }
}

/** One that runs has a reason while it gets no further; one that waits always does. */
function waitingReasonOf({ conditions, state }: Told): string | undefined {
  if (state !== "Waiting" && state !== "Running") {
    return undefined;
  }
  const { reason = "" } = conditions.find(({ type, status }) => type === state && status === "True") ?? {};
  return state === "Running" && reason === "" ? undefined : REASONS.has(reason) ? reason : OTHER;
}
