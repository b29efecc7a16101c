import { type FreezeOwner, parseOwner } from "../api/owner.ts";
import { KsvmError } from "../errors.ts";

/** Ends a run whose StorageVersionMigration has the name of another replica by now: of a later leader, or of another installation. */
export class MigrationTaken extends KsvmError {
  override readonly name = "MigrationTaken";

  /**
   * @param own whose name the migration had
   * @param found the owner that it has now, as the annotation says it
   */
  constructor(migration: string, own: FreezeOwner, found: string | undefined) {
    const other = parseOwner(found);
    const by = other === undefined ? "" : `: "${other.identity}", which leads by Lease "${other.lease}"`;
    const advice =
      other === undefined || other.lease === own.lease ? "" : "; remove one of the two installations of ksvm";
    super(
      "OwnershipLost",
      `Cannot continue: another replica took StorageVersionMigration "${migration}" over${by}${advice}`,
    );
  }
}
