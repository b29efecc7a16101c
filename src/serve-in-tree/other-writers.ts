import { IN_TREE_FIELD_MANAGER } from "../api/names.ts";
import type { InTreeMigration, StatusWriter } from "../in-tree/in-tree-migrations.ts";

/** Another client that set the status of a migration. */
export interface OtherWriter {
  readonly migration: string;
  readonly manager: string;
}

/**
 * Tells by managedFields whether another client sets the status of migrations. What was written before the first look is not counted:
 * Kubernetes' own migrator may have been at work, and switched off since.
 */
export class OtherWriters {
  /** By uid: what was written before the first look. */
  readonly #before: ReadonlyMap<string, ReadonlySet<string>>;

  /** @param migrations all there are */
  constructor(migrations: readonly InTreeMigration[]) {
    this.#before = new Map(migrations.map((one) => [one.metadata.uid, new Set(othersOf(one).map(keyOf))]));
  }

  /** The client that wrote the status of this one since; `undefined` where none did. */
  of(migration: InTreeMigration): OtherWriter | undefined {
    const before = this.#before.get(migration.metadata.uid);
    const found = othersOf(migration).find((writer) => !(before?.has(keyOf(writer)) ?? false));
    return found && { migration: migration.metadata.name, manager: found.manager };
  }
}

/** The writers of a status that are not this program. */
export function othersOf({ writers = [] }: InTreeMigration): readonly StatusWriter[] {
  return writers.filter(({ manager }) => manager !== IN_TREE_FIELD_MANAGER);
}

function keyOf({ manager, time }: StatusWriter): string {
  return JSON.stringify([manager, time]);
}
