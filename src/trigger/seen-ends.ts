import type { Clock } from "../clock.ts";
import { isFinal } from "../api/migration.ts";
import type { MigrationFacts } from "./migration-facts.ts";

/**
 * When this process saw first that a migration had ended, by its own clock. The times in a migration are by the clocks of API servers and of earlier
 * leaders: after the clock of an API server is set back, all of them may be still to come.
 */
export class SeenEnds {
  readonly #clock: Clock;
  /** By resource, and by the uid of the migration, on the monotonic clock. */
  readonly #seen = new Map<string, ReadonlyMap<string, number>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Takes note of all migrations of a resource.
   * @returns how many milliseconds ago this process saw first that a migration had ended, by the uid of each that has
   */
  saw(name: string, migrations: readonly MigrationFacts[]): ReadonlyMap<string, number> {
    const [before, now] = [this.#seen.get(name), this.#clock.monotonic()];
    const ended = migrations.filter(({ state }) => isFinal(state));
    const seen = new Map(ended.map(({ uid }) => [uid, before?.get(uid) ?? now]));
    this.#seen.set(name, seen);
    return new Map([...seen].map(([uid, since]) => [uid, now - since]));
  }

  /** Forgets what is no more. */
  keepOnly(isThere: (name: string) => boolean): void {
    [...this.#seen.keys()].filter((name) => !isThere(name)).forEach((name) => this.#seen.delete(name));
  }
}
