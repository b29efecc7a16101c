import { isNewer } from "../api/resource-version.ts";
import type { StorageVersionMigration } from "../api/migration.ts";
import { parseMigration } from "../api/parse-migration.ts";
import type { Clock } from "../clock.ts";
import { KsvmError } from "../errors.ts";
import type { ApiClient, KubeObject } from "../kube/client.ts";
import { collectionPath, MIGRATIONS } from "../kube/resources.ts";
import { watchObject } from "../kube/watch.ts";
import { type MigrationFacts, migrationFactsOf } from "./migration-facts.ts";

interface MigrationList {
  readonly items: readonly unknown[];
  readonly metadata: { readonly resourceVersion?: string };
}

/** What a {@link MigrationIndex} needs. */
export interface MigrationIndexOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  /** Told of each resource with a migration that came, ended, or went. */
  readonly onChange: (resourceName: string) => void;
}

/** Keeps a few words of every StorageVersionMigration, by a watch. */
export class MigrationIndex {
  readonly #options: MigrationIndexOptions;
  readonly #byUid = new Map<string, MigrationFacts>();

  constructor(options: MigrationIndexOptions) {
    this.#options = options;
  }

  /** The migrations of a resource. */
  of(resourceName: string): readonly MigrationFacts[] {
    return [...this.#byUid.values()].filter((migration) => migration.resourceName === resourceName);
  }

  /** Takes in what the API server answered to a write, ahead of the watch. */
  put(migration: StorageVersionMigration): void {
    const facts = migrationFactsOf(migration);
    const known = this.#byUid.get(facts.uid);
    if (known === undefined || isNewer(facts.resourceVersion, known.resourceVersion)) {
      this.#byUid.set(facts.uid, facts);
    }
  }

  /** Forgets one that was deleted. */
  delete({ uid }: Pick<MigrationFacts, "uid">): void {
    this.#byUid.delete(uid);
  }

  /**
   * Lists all, calls `onReady`, and keeps up until the signal is aborted or changes were missed.
   * @throws {ApiError | TransportError} where they cannot be listed or watched.
   */
  async follow(onReady: () => void, signal: AbortSignal): Promise<void> {
    const { client, clock } = this.#options;
    const path = collectionPath(MIGRATIONS);
    const { body } = await client.transport.request<Partial<MigrationList> | null>({ method: "GET", path, signal });
    const { items, metadata: { resourceVersion } = {} } = body ?? {};
    // Else whatever a proxy answers would say that there is no migration, and one would be created for each resource.
    if (!Array.isArray(items) || resourceVersion === undefined) {
      throw new KsvmError("ApiRequestFailed", `Cannot list ${path}: the answer is no list`);
    }
    // What is wrong with one keeps no other from being known; the controller names it.
    const migrations = items.flatMap((item) => parseMigration(item).object ?? []);
    const listed = new Set(migrations.map(({ metadata }) => metadata.uid));
    for (const facts of [...this.#byUid.values()].filter(({ uid }) => !listed.has(uid))) {
      this.#remove(facts);
    }
    // A list replaces everything: after a restore of etcd its resourceVersions are lower than those known.
    migrations.forEach((migration) => this.#replace(migration));
    onReady();
    const options = { resourceVersion, signal, clock };
    for await (const event of watchObject<KubeObject>(client.transport, MIGRATIONS, options)) {
      if ("object" in event) {
        this.#apply(event.type, event.object);
      }
    }
  }

  #apply(type: "ADDED" | "MODIFIED" | "DELETED", value: unknown): void {
    const { object, uid } = parseMigration(value);
    // One that can be read no more is as good as deleted: nothing that was known of it is true any more.
    const known = this.#byUid.get(uid);
    if (type !== "DELETED" && object !== undefined) {
      this.#take(object);
    } else if (known !== undefined) {
      this.#remove(known);
    }
  }

  #take(migration: StorageVersionMigration): void {
    const before = this.#byUid.get(migration.metadata.uid);
    this.put(migration);
    this.#tell(before, migration);
  }

  #replace(migration: StorageVersionMigration): void {
    const before = this.#byUid.get(migration.metadata.uid);
    this.#byUid.set(migration.metadata.uid, migrationFactsOf(migration));
    this.#tell(before, migration);
  }

  #tell(before: MigrationFacts | undefined, { metadata: { uid } }: StorageVersionMigration): void {
    const after = this.#byUid.get(uid);
    if (after !== undefined && isOfInterest(before, after)) {
      this.#options.onChange(after.resourceName);
    }
  }

  #remove(facts: MigrationFacts): void {
    this.delete(facts);
    this.#options.onChange(facts.resourceName);
  }
}

/** The progress of a migration, which is most of what is written about it, changes nothing. */
function isOfInterest(before: MigrationFacts | undefined, after: MigrationFacts): boolean {
  return (
    before === undefined ||
    before.phase !== after.phase ||
    before.hash !== after.hash ||
    before.isSuspended !== after.isSuspended
  );
}
