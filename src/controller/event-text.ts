import { wordsFor } from "../old/apiservers/concern-words.ts";
import type { MigrationEvent } from "../old/migrator/events.ts";
import type { MigrationResult } from "../old/migrator/result.ts";
import type { EventText } from "./event-recorder.ts";
import { withProgramOfFlags } from "./flag-words.ts";
import type { Phase } from "./migration-status.ts";

/** What an event of a run tells those who look at the migration; `undefined` where nothing. */
export function eventTextOf(event: MigrationEvent): EventText | undefined {
  switch (event.type) {
    case "frozen":
      return normal("Frozen", `froze the storage version at "${event.storageVersion}"`);
    case "converged":
      return normal(
        "Converged",
        `every API server shows ${wordsFor(event.concern).shown}: ${event.apiServers.join(", ")}`,
      );
    case "encryptingAlike":
      return normal(
        "EncryptingAlike",
        `every API server encrypts with configuration ${event.configuration}: ${event.apiServers.join(", ")}`,
      );
    case "pruned":
      return normal("Pruned", `pruned storedVersions to [${event.storedVersions.join(",")}]`);
    case "unfrozen":
      return normal("Unfrozen", "lifted the freeze");
    case "warning":
      return { type: "Warning", reason: "Warning", message: withProgramOfFlags(event.message) };
    default:
      return undefined;
  }
}

/** What a run tells that ended and is tried again: a user may have to act. */
export function waitTextOf({ reason = "", message = "" }: Phase): EventText {
  return { type: "Warning", reason: "Waiting", message: `${reason}: ${message}` };
}

/** What the end of a migration tells. */
export function resultTextOf(phase: Phase, result: MigrationResult | undefined): EventText {
  const why = [phase.reason, phase.message].filter((text) => text !== undefined).join(": ");
  if (phase.type === "Failed") {
    return { type: "Warning", reason: "Failed", message: why };
  }
  const { counts } = result ?? {};
  return normal(
    "Migrated",
    counts === undefined ? why : `${counts.done} objects looked at, ${counts.migrated} rewritten`,
  );
}

function normal(reason: string, message: string): EventText {
  return { type: "Normal", reason, message };
}
