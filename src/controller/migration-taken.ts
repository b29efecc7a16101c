import { type FreezeOwner, parseOwner } from "../api/owner.ts";
import { KsvmError } from "../errors.ts";

/** Ends a run whose StorageVersionMigration has the name of another replica by now, of a later leader or of another installation, or none. */
export class MigrationTaken extends KsvmError {
  override readonly name = "MigrationTaken";
  /** Whether it has that of another installation, whose leader carries it out at the same time. */
  readonly isOfOthers: boolean;

  /**
   * @param own whose name the migration had
   * @param found the owner that it has now, as the annotation says it
   */
  constructor(migration: string, own: FreezeOwner, found: string | undefined) {
    const other = parseOwner(found);
    const isOfOthers = other !== undefined && other.lease !== own.lease;
    super("OwnershipLost", `Cannot continue: ${whatBecameOf(migration, other)}${isOfOthers ? ADVICE : ""}`);
    this.isOfOthers = isOfOthers;
  }
}

const ADVICE = "; remove one of the two installations of ksvm";

function whatBecameOf(migration: string, other: FreezeOwner | undefined): string {
  return other === undefined
    ? `another client changed the annotation of StorageVersionMigration "${migration}" that says who carries it out`
    : `another replica took StorageVersionMigration "${migration}" over: "${other.identity}", which leads by Lease "${other.lease}"`;
}
