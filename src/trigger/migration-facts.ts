import {
  hasCondition,
  isSuspended,
  type MigrationState,
  resourceNameOf,
  stateOf,
  type StorageVersionMigration,
} from "../api/migration.ts";
import { ATTEMPT_ANNOTATION, CREATED_BY_LABEL, CREATED_BY_TRIGGER, HASH_ANNOTATION } from "../api/names.ts";
import { asksForReencryption } from "../api/reencryption.ts";
import { isLater } from "../kube/objects.ts";
import type { MigrationChange } from "../migrations/migration-feed.ts";

/** What the trigger keeps of a StorageVersionMigration. */
export interface MigrationFacts {
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  /** `resource.group` of what it migrates. */
  readonly resourceName: string;
  /** Whether the trigger created it. */
  readonly isOurs: boolean;
  readonly state: MigrationState;
  /** Whether a user stopped it, or the controller says that it is stopped. */
  readonly isSuspended: boolean;
  /** Whether it is to re-encrypt: it is its user's, whatever the trigger finds. */
  readonly isReencryption: boolean;
  /** Of the condition of its state, such as `FreezeLifted`. */
  readonly reason?: string;
  /** Milliseconds since the Unix epoch; NaN where it cannot be told. */
  readonly createdAt: number;
  /** When it ended, in milliseconds since the Unix epoch; its creation where that cannot be told. */
  readonly endedAt: number;
  /** The hash that it migrates to; missing if it is unknown. */
  readonly hash?: string;
  readonly attempt: number;
  /** `uid/generation` of the CRD when every object was proven to be in the storage version; missing where none was. */
  readonly provenCrd?: string;
}

/** Reads what matters of a migration. */
export function migrationFactsOf(migration: StorageVersionMigration): MigrationFacts {
  const { metadata, spec, status = {} } = migration;
  const { annotations = {}, labels = {} } = metadata;
  const state = stateOf(migration);
  const ended = status.conditions?.find((condition) => condition.type === state && condition.status === "True");
  const createdAt = Date.parse(metadata.creationTimestamp ?? "");
  const endedAt = Date.parse(ended?.lastUpdateTime ?? "");
  const attempt = Number(annotations[ATTEMPT_ANNOTATION]);
  const hash = annotations[HASH_ANNOTATION];
  return {
    name: metadata.name,
    uid: metadata.uid,
    resourceVersion: metadata.resourceVersion,
    resourceName: resourceNameOf(spec.resource),
    isOurs: labels[CREATED_BY_LABEL] === CREATED_BY_TRIGGER,
    state,
    isSuspended: isSuspended(migration) || hasCondition(migration, "Suspended"),
    isReencryption: asksForReencryption(annotations),
    createdAt,
    endedAt: Number.isNaN(endedAt) ? createdAt : endedAt,
    attempt: Number.isInteger(attempt) && attempt > 0 ? attempt : 1,
    ...(ended?.reason === undefined ? {} : { reason: ended.reason }),
    ...(status.crd === undefined ? {} : { provenCrd: status.crd }),
    ...(hash === undefined ? {} : { hash }),
  };
}

/** Keeps a few words of every StorageVersionMigration, as the feed and the trigger's own writes tell them. */
export class MigrationIndex {
  #byUid = new Map<string, MigrationFacts>();

  /**
   * The migrations of each resource, without those that re-encrypt: the trigger neither deletes one nor takes it for
   * its own, so that none that proves nothing of the key ever stands in its place.
   */
  byResource(): ReadonlyMap<string, readonly MigrationFacts[]> {
    const all = [...this.#byUid.values()].filter(({ isReencryption }) => !isReencryption);
    return Map.groupBy(all, ({ resourceName }) => resourceName);
  }

  of(name: string): readonly MigrationFacts[] {
    return [...this.#byUid.values()].filter((one) => one.resourceName === name && !one.isReencryption);
  }

  /** Takes in what the API server answered to a write, ahead of the feed. */
  put(migration: StorageVersionMigration): void {
    const { deletionTimestamp, uid } = migration.metadata;
    // The feed tells no more of one that was deleted, whatever finalizer keeps it.
    if (deletionTimestamp === undefined) this.#set(migrationFactsOf(migration));
    else this.delete(uid);
  }

  delete(uid: string): void {
    this.#byUid.delete(uid);
  }

  /** Takes in what the feed tells. @returns the resources with a migration that came, ended, was stopped, or went */
  apply(change: MigrationChange): readonly string[] {
    switch (change.type) {
      case "listing":
        return [];
      case "listed": {
        const before = this.#byUid;
        this.#byUid = new Map(change.migrations.map(migrationFactsOf).map((facts) => [facts.uid, facts]));
        const uids = new Set([...before.keys(), ...this.#byUid.keys()]);
        return [...uids].flatMap((uid) => changedResource(before.get(uid), this.#byUid.get(uid)));
      }
      case "changed": {
        const { uid } = change.migration.metadata;
        const before = this.#byUid.get(uid);
        this.#set(migrationFactsOf(change.migration));
        return changedResource(before, this.#byUid.get(uid));
      }
      case "deleted": {
        const before = this.#byUid.get(change.uid);
        this.#byUid.delete(change.uid);
        return changedResource(before, undefined);
      }
    }
  }

  #set(facts: MigrationFacts): void {
    const known = this.#byUid.get(facts.uid);
    if (known === undefined || isLater(facts.resourceVersion, known.resourceVersion)) this.#byUid.set(facts.uid, facts);
  }
}

/** The progress of a migration, which is most of what is written about it, changes nothing. */
function changedResource(before: MigrationFacts | undefined, after: MigrationFacts | undefined): readonly string[] {
  const summary = (facts: MigrationFacts | undefined): unknown =>
    facts && [facts.state, facts.hash, facts.isSuspended, facts.isReencryption].join();
  const name = (after ?? before)?.resourceName;
  return name === undefined || summary(before) === summary(after) ? [] : [name];
}
