import type { LiveLease } from "./control-plane-objects.ts";

/** What {@link IgnoredServers} need. */
export interface IgnoredServersOptions {
  /** Names of identity Leases whose API servers are gone, as the user says. */
  readonly names: readonly string[];
  /** Told who is to be ignored, and lives after all. */
  readonly onLag: (server: string, reason: string) => void;
  /** Told of its Lease then. */
  readonly onAlive: (lease: LiveLease) => void;
}

/**
 * The API servers that a user says are gone. One that is alive renews its identity Lease: every look of a run is compared
 * with its first one, and from the renewal on the API server counts, until the run ends.
 */
export class IgnoredServers {
  readonly #options: IgnoredServersOptions;
  /** When each Lease had been renewed at the first look. */
  #first: ReadonlyMap<string, string | undefined> | undefined;
  /** Those whose Leases lived at the first look. */
  #liveAtFirst: ReadonlySet<string> = new Set();
  readonly #alive = new Set<string>();

  constructor(options: IgnoredServersOptions) {
    this.#options = options;
  }

  /** Those that are still taken for gone. */
  get names(): readonly string[] {
    return this.#options.names.filter((name) => !this.#alive.has(name));
  }

  /**
   * The Leases of one look without those of API servers that are gone.
   *
   * @param all also those that have expired: by the clock of the next API server that answers, they may live
   */
  without(leases: readonly LiveLease[], all: readonly LiveLease[]): readonly LiveLease[] {
    if (this.#first === undefined) {
      this.#first = new Map(all.map(({ name, renewTime }) => [name, renewTime]));
      this.#liveAtFirst = new Set(leases.map(({ name }) => name));
    }
    return leases.filter((lease) => !this.#isIgnored(lease, this.#first));
  }

  /** Those that are to be ignored and whose Leases lived at the first look. */
  get live(): readonly string[] {
    return this.names.filter((name) => this.#liveAtFirst.has(name));
  }

  #isIgnored(lease: LiveLease, first: ReadonlyMap<string, string | undefined> | undefined): boolean {
    const { name, renewTime } = lease;
    if (!this.names.includes(name)) {
      return false;
    }
    if (first?.has(name) === true && first.get(name) === renewTime) {
      return true;
    }
    this.#alive.add(name);
    this.#options.onAlive(lease);
    this.#options.onLag(name, "it was to be ignored, and has renewed its identity Lease since: its API server lives");
    return false;
  }
}
