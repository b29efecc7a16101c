import type { ApiServerEvent } from "../apiservers/events.ts";
import type { GuardIdentity } from "../freeze/guard.ts";
import type { RetryEvent } from "../retry/events.ts";
import type { RewriteEvent } from "./rewrite/events.ts";

/** What a run tells those who watch it. */
export type MigrationEvent =
  /** An earlier run holds the Lease; it is being watched to see whether it lives. */
  | { readonly type: "contended"; readonly holder: string }
  | { readonly type: "frozen"; readonly storageVersion: string; readonly guard: GuardIdentity }
  | ApiServerEvent
  | RewriteEvent
  | RetryEvent
  /** The in-tree migrator of Kubernetes works on the resource: the run waits, without a freeze, until that has ended. */
  | { readonly type: "yielding"; readonly reason: string }
  /** The run begins again at step 1. */
  | { readonly type: "startingAgain"; readonly reason: string }
  /**
   * `removed` were in storedVersions before. With `clearsDoubt` the condition StorageMigrating of a migration went with them that had ended
   * without a success.
   */
  | {
      readonly type: "pruned";
      readonly storedVersions: readonly string[];
      readonly removed: readonly string[];
      readonly clearsDoubt?: true;
    }
  | { readonly type: "unfrozen" };

/** Receives the events of a run. It must not throw. */
export type EventSink = (event: MigrationEvent) => void;
