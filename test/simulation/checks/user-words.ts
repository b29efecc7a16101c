import { resourceNameOf, type StorageState } from "../../../src/api/migration.ts";
import type { ModelObject } from "../model/model-object.ts";
import type { EtcdEntry } from "../model/timeline.ts";
import { isByKsvm, type World } from "../world/world.ts";

export const MIGRATIONS_PREFIX = "/registry/migration.k8s.io/storageversionmigrations/";
export const STATES_PREFIX = "/registry/migration.k8s.io/storagestates/";

/**
 * The resources whose migrations or StorageState say what a user wrote, which is not ksvm's to answer for. That ends once the user has
 * deleted the StorageState and each migration that was edited: ksvm begins with what it sees then.
 */
export class UserWords {
  /** The keys of what is edited, or rests on that, by resource. */
  readonly #edited = new Map<string, Set<string>>();
  /** A restore brings back what was deleted. */
  readonly #all = new Map<string, Set<string>>();

  constructor({ cluster: { etcd } }: World) {
    etcd.onRevision((entry) => {
      if (entry.key.startsWith(MIGRATIONS_PREFIX) || entry.key.startsWith(STATES_PREFIX)) this.#written(entry);
    });
    etcd.onRestore(() => {
      for (const [name, keys] of this.#all) this.#edited.set(name, new Set(keys));
    });
  }

  /** @param name of a resource, `plural.group` */
  has(name: string): boolean {
    return (this.#edited.get(name)?.size ?? 0) > 0;
  }

  #written({ before, isDeleted, key, object }: EtcdEntry): void {
    const name = resourceNameOf((object as unknown as StorageState).spec.resource);
    if (isDeleted) {
      this.#edited.get(name)?.delete(key);
      return;
    }
    const isNew = before === undefined || before.isDeleted;
    if (isByKsvm() || said(object) === said(isNew ? undefined : before.object)) return;
    for (const sets of [this.#edited, this.#all]) {
      const keys = sets.get(name) ?? new Set();
      sets.set(name, keys.add(key).add(`${STATES_PREFIX}${name}`));
    }
  }
}

/** What a user may say in a migration or a StorageState that changes what ksvm believes. */
function said(object: ModelObject | undefined): string {
  const { annotations = {}, labels = {} } = object?.metadata ?? {};
  return JSON.stringify([object?.["status"] ?? {}, annotations, labels]);
}
