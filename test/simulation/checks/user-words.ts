import {
  hasCondition,
  resourceNameOf,
  type StorageState,
  type StorageVersionMigration,
  UNKNOWN_HASH,
} from "../../../src/api/migration.ts";
import {
  ATTEMPT_ANNOTATION,
  CRD_ANNOTATION,
  CREATED_BY_LABEL,
  CREATED_BY_TRIGGER,
  HASH_ANNOTATION,
  STORAGE_VERSION_ANNOTATION,
  STORED_VERSIONS_ANNOTATION,
} from "../../../src/api/names.ts";
import type { ModelObject } from "../model/model-object.ts";
import type { EtcdEntry } from "../model/timeline.ts";
import { isByKsvm as isWrittenByKsvm, type World } from "../world/world.ts";

export const MIGRATIONS_PREFIX = "/registry/migration.k8s.io/storageversionmigrations/";
export const STATES_PREFIX = "/registry/migration.k8s.io/storagestates/";

/** What the trigger remembers in migrations. */
const BELIEVED = [HASH_ANNOTATION, STORED_VERSIONS_ANNOTATION, STORAGE_VERSION_ANNOTATION, ATTEMPT_ANNOTATION];

/**
 * The resources whose migrations or StorageState say what a user wrote, which is not ksvm's to answer for. That ends once the user has
 * deleted the StorageState and each migration that was edited: ksvm begins with what it sees then.
 */
export class UserWords {
  /** The keys of what is edited, or rests on that, by resource. */
  readonly #edited = new Map<string, Set<string>>();
  /** A restore brings back what was deleted. */
  readonly #all = new Map<string, Set<string>>();

  readonly #isByKsvm: () => boolean;

  /** @param isByKsvm whether ksvm writes the revision that etcd tells of at this moment */
  constructor({ cluster: { etcd } }: World, isByKsvm: () => boolean = isWrittenByKsvm) {
    this.#isByKsvm = isByKsvm;
    etcd.onRevision((entry) => {
      if (entry.key.startsWith(MIGRATIONS_PREFIX) || entry.key.startsWith(STATES_PREFIX)) this.#written(entry);
    });
    etcd.onRestore(() => {
      for (const [name, keys] of this.#all) {
        this.#edited.set(name, new Set([...keys].filter((key) => etcd.get(key) !== undefined)));
      }
    });
  }

  /** @param name of a resource, `plural.group` */
  has(name: string): boolean {
    return (this.#edited.get(name)?.size ?? 0) > 0;
  }

  /** @param key of a migration or a StorageState */
  isEdited(key: string): boolean {
    return [...this.#edited.values()].some((keys) => keys.has(key));
  }

  #written(entry: EtcdEntry): void {
    const { before, isDeleted, key, object } = entry;
    const name = resourceNameOf((object as unknown as StorageState).spec.resource);
    if (isDeleted) {
      this.#edited.get(name)?.delete(key);
      return;
    }
    const former = before === undefined || before.isDeleted ? undefined : before;
    const claimed = former === undefined ? [] : claimsOf(former);
    const isClaim = !claimsOf(entry).every((claim) => claimed.includes(claim));
    if (this.#isByKsvm() || (!isClaim && !isHashRemoved(former, entry))) return;
    for (const sets of [this.#edited, this.#all]) {
      const keys = sets.get(name) ?? new Set();
      sets.set(name, keys.add(key).add(`${STATES_PREFIX}${name}`));
    }
  }
}

/**
 * What a migration or a StorageState says that ksvm believes. What is taken away proves nothing any more, `Unknown` has ksvm look at
 * everything, and so has a heartbeat that is far from now.
 */
function claimsOf({ key, object }: EtcdEntry): readonly string[] {
  const { annotations = {}, labels = {} } = object.metadata;
  if (key.startsWith(STATES_PREFIX)) {
    const { status } = object as unknown as StorageState;
    const current = status?.currentStorageVersionHash ?? UNKNOWN_HASH;
    return [...(current === UNKNOWN_HASH ? [] : [current]), ...[annotations[CRD_ANNOTATION] ?? []].flat()];
  }
  const migration = object as unknown as StorageVersionMigration;
  return [
    ...(hasCondition(migration, "Succeeded") ? ["Succeeded"] : []),
    ...[migration.status?.crd ?? []].flat(),
    ...BELIEVED.flatMap((name) => annotations[name] ?? []),
    ...(labels[CREATED_BY_LABEL] === CREATED_BY_TRIGGER ? [CREATED_BY_TRIGGER] : []),
  ];
}

/** Whether a StorageState no longer names a version that it named. */
function isHashRemoved(former: EtcdEntry | undefined, { object }: EtcdEntry): boolean {
  const hashes = hashesOf(object);
  return !hashes.includes(UNKNOWN_HASH) && hashesOf(former?.object).some((hash) => !hashes.includes(hash));
}

function hashesOf(state: ModelObject | undefined): readonly string[] {
  return (state as unknown as StorageState | undefined)?.status?.persistedStorageVersionHashes ?? [];
}
