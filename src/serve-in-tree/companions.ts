import { resourceNameOf, stateOf, type StorageVersionMigration } from "../api/migration.ts";
import { CREATED_BY_IN_TREE, CREATED_BY_LABEL, FORCE_ANNOTATION, MANAGED_BY, MANAGED_BY_LABEL } from "../api/names.ts";
import { asksForReencryption, reencryptAnnotation } from "../api/reencryption.ts";
import type { InTreeMigration } from "../in-tree/in-tree-migrations.ts";
import type { KubeObject, NewObject } from "../kube/client.ts";
import { apiVersionOf, type Resource } from "../kube/resources.ts";
import { manifestOf } from "../migrations/manifest.ts";
import type { MigrationChange } from "../migrations/migration-feed.ts";
import { type Companion, companionNameOf } from "./next-step.ts";

/** What a companion is created from. */
export interface CompanionParts {
  readonly migration: InTreeMigration;
  /** Migrations of Kubernetes' own migrator, in the version that is served. */
  readonly inTree: Resource;
  /** What is migrated. */
  readonly resource: Resource;
  /** Whether that is a custom resource: its storage version can be frozen and its storedVersions pruned. */
  readonly isCustom: boolean;
}

/**
 * The migration of ours that does the work of one of Kubernetes' own migrator. As there every object is written again, since a new
 * encryption key changes no hash; the garbage collector deletes it with that one.
 */
export function companionManifest({ inTree, isCustom, migration, resource }: CompanionParts): NewObject {
  const { name, uid } = migration.metadata;
  const apiVersion = apiVersionOf(inTree.group, inTree.version);
  const { metadata, ...manifest } = manifestOf(resource, {
    labels: { [MANAGED_BY_LABEL]: MANAGED_BY, [CREATED_BY_LABEL]: CREATED_BY_IN_TREE },
    annotations: isCustom ? { [FORCE_ANNOTATION]: "true" } : reencryptAnnotation({ isOptional: true }),
    ownerReferences: [{ apiVersion, kind: "StorageVersionMigration", name, uid }],
  });
  const { generateName: _, ...named } = metadata;
  return { ...manifest, metadata: { ...named, name: companionNameOf(migration) } };
}

/** Whether a migration of ours does the work of one of Kubernetes' own migrator, by its label. */
export function isCompanion({ metadata }: KubeObject): boolean {
  return metadata.labels?.[CREATED_BY_LABEL] === CREATED_BY_IN_TREE;
}

/** The companions that there are, as the feed of all migrations tells. */
export class Companions {
  readonly #byUid = new Map<string, Companion>();
  #isListed = false;

  /** Whether all of them are known. */
  get isListed(): boolean {
    return this.#isListed;
  }

  /** All of them, by name. */
  get byName(): ReadonlyMap<string, Companion> {
    return new Map([...this.#byUid.values()].map((one) => [one.name, one]));
  }

  /** @returns whether it was about a companion */
  apply(change: MigrationChange): boolean {
    switch (change.type) {
      case "listing":
        return false;
      case "listed":
        this.#byUid.clear();
        change.migrations.forEach((one) => this.#put(one));
        this.#isListed = true;
        return true;
      case "changed":
        return this.#put(change.migration);
      case "deleted":
        return this.#byUid.delete(change.uid);
    }
  }

  #put(migration: StorageVersionMigration): boolean {
    const { annotations, name, uid } = migration.metadata;
    if (!isCompanion(migration)) {
      return this.#byUid.delete(uid);
    }
    const state = stateOf(migration);
    const { reason = "", message = "" } = migration.status?.conditions?.find(({ type }) => type === state) ?? {};
    const resource = resourceNameOf(migration.spec.resource);
    // What its annotations say now says nothing of when it ran: one that found nothing to do wrote nothing.
    const isAsked = annotations?.[FORCE_ANNOTATION] === "true" || asksForReencryption(annotations);
    const isThorough = isAsked && reason !== "NothingToDo";
    this.#byUid.set(uid, { name, uid, resource, isThorough, state, reason, message });
    return true;
  }
}
