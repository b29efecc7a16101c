import type { StorageVersionMigration } from "../api/migration.ts";
import { isNewer } from "../api/resource-version.ts";
import type { MigrationChange } from "../migrations/migration-feed.ts";
import { type MigrationFacts, migrationFactsOf } from "./migration-facts.ts";

/** Keeps a few words of every StorageVersionMigration, as the feed and the trigger's own writes tell them. */
export class MigrationIndex {
  readonly #onChange: (resourceName: string) => void;
  readonly #byUid = new Map<string, MigrationFacts>();
  readonly #byResource = new Map<string, Map<string, MigrationFacts>>();
  /** By uid: what the trigger wrote since the list began that is under way, or deleted; the list may not show it. */
  readonly #written = new Map<string, MigrationFacts | undefined>();

  /** @param onChange told of each resource with a migration that came, ended, or went */
  constructor(onChange: (resourceName: string) => void) {
    this.#onChange = onChange;
  }

  /**
   * The migrations of a resource, without those that re-encrypt: the trigger neither deletes one nor takes it for its own, so
   * that none that proves nothing of the key ever stands in its place.
   */
  of(resourceName: string): readonly MigrationFacts[] {
    const all = [...(this.#byResource.get(resourceName)?.values() ?? [])];
    return all.filter(({ isReencryption }) => !isReencryption);
  }

  /** Takes in what the API server answered to a write, ahead of the feed. */
  put(migration: StorageVersionMigration): void {
    const facts = migrationFactsOf(migration);
    if (migration.metadata.deletionTimestamp !== undefined) {
      // The feed tells of it no more, whatever finalizer keeps it.
      this.delete(facts);
      return;
    }
    this.#written.set(facts.uid, facts);
    this.#setNewer(facts);
  }

  /** Forgets one that was deleted. */
  delete({ uid }: Pick<MigrationFacts, "uid">): void {
    this.#written.set(uid, undefined);
    this.#remove(uid);
  }

  /** Takes in what a read showed in the place of one, however old it is: after a restore of etcd the feed may be late to tell. */
  correct({ uid }: Pick<MigrationFacts, "uid">, found: StorageVersionMigration | undefined): void {
    this.#remove(uid);
    // As in a write, the feed tells of one that was deleted no more.
    if (found !== undefined && found.metadata.deletionTimestamp === undefined) {
      this.#set(migrationFactsOf(found));
    }
  }

  /** Takes in what the feed tells. */
  apply(change: MigrationChange): void {
    switch (change.type) {
      case "listing":
        this.#written.clear();
        break;
      case "listed":
        this.#replaceAll(change.migrations.map(migrationFactsOf));
        break;
      case "changed":
        this.#take(migrationFactsOf(change.migration));
        break;
      case "deleted": {
        const gone = this.#byUid.get(change.uid);
        this.#remove(change.uid);
        this.#tell(gone, undefined);
      }
    }
  }

  /**
   * A list replaces everything: after a restore of etcd its resourceVersions are lower than those known. Only what was
   * written while it was read may be newer than it.
   */
  #replaceAll(listed: readonly MigrationFacts[]): void {
    const after = new Map(listed.map((facts) => [facts.uid, facts]));
    for (const [uid, facts] of this.#written) {
      const shown = after.get(uid);
      if (facts === undefined) {
        after.delete(uid);
      } else if (shown === undefined || isNewer(facts.resourceVersion, shown.resourceVersion)) {
        after.set(uid, facts);
      }
    }
    for (const gone of [...this.#byUid.values()].filter(({ uid }) => !after.has(uid))) {
      this.#remove(gone.uid);
      this.#tell(gone, undefined);
    }
    for (const facts of after.values()) {
      const before = this.#byUid.get(facts.uid);
      this.#set(facts);
      this.#tell(before, facts);
    }
  }

  #take(facts: MigrationFacts): void {
    const before = this.#byUid.get(facts.uid);
    this.#setNewer(facts);
    this.#tell(before, this.#byUid.get(facts.uid));
  }

  #setNewer(facts: MigrationFacts): void {
    const known = this.#byUid.get(facts.uid);
    if (known === undefined || isNewer(facts.resourceVersion, known.resourceVersion)) {
      this.#set(facts);
    }
  }

  #set(facts: MigrationFacts): void {
    this.#remove(facts.uid);
    const { resourceName, uid } = facts;
    const ofResource = this.#byResource.get(resourceName) ?? new Map<string, MigrationFacts>();
    this.#byResource.set(resourceName, ofResource.set(uid, facts));
    this.#byUid.set(uid, facts);
  }

  #remove(uid: string): void {
    const { resourceName = "" } = this.#byUid.get(uid) ?? {};
    this.#byUid.delete(uid);
    const ofResource = this.#byResource.get(resourceName);
    ofResource?.delete(uid);
    if (ofResource?.size === 0) {
      this.#byResource.delete(resourceName);
    }
  }

  #tell(before: MigrationFacts | undefined, after: MigrationFacts | undefined): void {
    const facts = after ?? before;
    if (facts !== undefined && isOfInterest(before, after)) {
      this.#onChange(facts.resourceName);
    }
  }
}

/** The progress of a migration, which is most of what is written about it, changes nothing. */
function isOfInterest(before: MigrationFacts | undefined, after: MigrationFacts | undefined): boolean {
  return (
    before === undefined ||
    after === undefined ||
    before.state !== after.state ||
    before.hash !== after.hash ||
    before.isSuspended !== after.isSuspended ||
    before.isReencryption !== after.isReencryption
  );
}
