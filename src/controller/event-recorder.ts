import type { Logger } from "pino";
import { MIGRATION_API_VERSION, type StorageVersionMigration } from "../api/migration.ts";
import { cutText } from "../cut-text.ts";
import { messageOf } from "../errors.ts";
import type { Client } from "../kube/client.ts";
import type { MigrationEvent, MigrationResult } from "../migrator/types.ts";
import { doneIn, namingFlags, type Phase } from "./migration-status.ts";

/** What a core/v1 Event says. */
export interface EventText {
  readonly type: "Normal" | "Warning";
  /** One word in upper camel case. */
  readonly reason: string;
  readonly message: string;
}

/** Events of cluster-scoped objects live here; `kubectl describe` looks for them here, too. */
const NAMESPACE = "default";
/** https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/apis/core/validation/events.go */
const MAX_MESSAGE_LENGTH = 1_024;
/** Of the object's name in the Event's, so that there is room for the rest. */
const MAX_NAME_LENGTH = 220;
const WRITE_TIMEOUT_MS = 10_000;

/**
 * Writes the Events of migrations. They are for people: one that cannot be written is logged, and nothing else comes of
 * it.
 */
export class EventRecorder {
  readonly #client: Client;
  readonly #logger: Logger;
  readonly #underWay = new Set<Promise<void>>();

  constructor(client: Client, logger: Logger) {
    this.#client = client;
    this.#logger = logger;
  }

  /** Writes an Event, without waiting for it. */
  record(migration: StorageVersionMigration, text: EventText): void {
    const write = this.#write(migration, text).finally(() => this.#underWay.delete(write));
    this.#underWay.add(write);
  }

  /** Waits for what is under way. */
  async close(): Promise<void> {
    await Promise.all(this.#underWay);
  }

  async #write({ metadata: { name, uid } }: StorageVersionMigration, text: EventText): Promise<void> {
    const { clock } = this.#client;
    const now = new Date(clock.now()).toISOString().replace(/\.\d+Z$/, "Z");
    const event = {
      apiVersion: "v1",
      kind: "Event",
      metadata: { namespace: NAMESPACE, generateName: `${name.slice(0, MAX_NAME_LENGTH)}.` },
      involvedObject: { apiVersion: MIGRATION_API_VERSION, kind: "StorageVersionMigration", name, uid },
      type: text.type,
      reason: text.reason,
      message: cutText(text.message, MAX_MESSAGE_LENGTH),
      source: { component: "ksvm" },
      firstTimestamp: now,
      lastTimestamp: now,
      count: 1,
    };
    try {
      const path = `/api/v1/namespaces/${NAMESPACE}/events`;
      await this.#client.create(path, event, { signal: clock.timeout(WRITE_TIMEOUT_MS) });
    } catch (error) {
      this.#logger.debug({ reason: text.reason, message: messageOf(error) }, "Cannot write an Event");
    }
  }
}

/** What an event of a run tells those who look at the migration; `undefined` where nothing. */
export function eventText(event: MigrationEvent): EventText | undefined {
  switch (event.type) {
    case "frozen":
      return normal("Frozen", `froze the storage version at "${event.storageVersion}"`);
    case "converged":
      return normal("Converged", `every API server shows the current storage version: ${event.apiServers} in all`);
    case "pruned":
      return normal("Pruned", `pruned storedVersions to [${event.storedVersions.join(",")}]`);
    case "unfrozen":
      return normal("Unfrozen", "lifted the freeze");
    case "warning":
      return { type: "Warning", reason: "Warning", message: namingFlags(event.message) };
    default:
      return undefined;
  }
}

/** What a phase tells in which a run ended: that the migration waits, or how it ended. */
export function phaseText({ message, reason = "", type }: Phase, { tally }: Partial<MigrationResult> = {}): EventText {
  const why = [reason, message].filter((text) => text !== undefined).join(": ");
  if (type === "Waiting" || type === "Failed") return { type: "Warning", reason: type, message: why };
  const told = tally === undefined ? why : `${doneIn(tally)} objects looked at, ${tally.rewritten} rewritten`;
  return normal("Migrated", told);
}

function normal(reason: string, message: string): EventText {
  return { type: "Normal", reason, message };
}
