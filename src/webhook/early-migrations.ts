import type { CustomResourceDefinition } from "../api/crd.ts";
import { resourceNameOf } from "../api/migration.ts";
import { versionsChangeOf } from "../apiservers/settle.ts";
import type { Clock } from "../clock.ts";
import {
  type EarlyMigration,
  type EarlyMode,
  earlyMessage,
  earlyMigrationOf,
  secondsLeft,
} from "../in-tree/early-migration.ts";
import { isAbsent } from "../kube/absent.ts";
import { objectIn } from "../kube/answered-object.ts";
import type { ApiResponse } from "../kube/api-request.ts";
import type { ApiClient } from "../kube/client.ts";
import { readProjected } from "../kube/list-projected.ts";
import { CRDS, objectPath } from "../kube/resources.ts";
import { crdProjection } from "../resources/crd-projection.ts";
import { untilAborted } from "../retry/deadline.ts";

/** What an administrator chooses. */
export interface EarlySettings {
  readonly mode: EarlyMode;
  /** Milliseconds since the last change of the versions of a CRD. */
  readonly settleMs: number;
}

/** What a new migration of Kubernetes' own migrator asks for. */
export interface InTreeResource {
  /** @default the core group */
  readonly group?: string | null | undefined;
  readonly resource: string;
}

/** What becomes of a new migration. `unread` is created, and the user is told that the CRD could not be read. */
export type EarlyVerdict =
  | { readonly decision: "allowed" }
  | {
      readonly decision: "unread";
      readonly crdName: string;
      readonly message: string;
      /** For the log alone: it may show internals. */
      readonly error?: unknown;
    }
  | {
      readonly decision: "warned" | "denied";
      readonly crdName: string;
      readonly message: string;
      /** Until it is no longer too early. */
      readonly seconds: number;
    };

/** What {@link EarlyMigrations} needs. */
export interface EarlyMigrationsOptions extends EarlySettings {
  readonly client: ApiClient;
  readonly clock: Clock;
  /** Milliseconds for reading a CRD. @default 3000 */
  readonly readMs?: number;
  /** Milliseconds from one read to the next in each lane. @default 50 */
  readonly pauseMs?: number;
}

/** Less than the time that an API server waits for the webhook: past that the user would not be told. */
const READ_MS = 3_000;

/** Reads at once, each of a CRD of up to some megabytes: many creations at once must not take the memory that reviews of a freeze need. */
const LANES = 4;

/** So there are at most 80 reads a second, and every client in the cluster network can send reviews. */
const PAUSE_MS = 50;

/** Half of the connections that an API server may have: the others are for reviews of a freeze. */
const MAX_PENDING = 64;

/** The CRDs whose last change is remembered: those that were changed a moment ago, and those that do not say when. */
const MAX_SIGHTS = 1_000;

/** As the API server takes them for names of CRDs. */
const CRD_NAME = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$/;
const MAX_NAME_LENGTH = 253;

/** Of managedFields a user decides how large they are. */
const FIELDS = crdProjection({
  name: "scalar",
  uid: "scalar",
  generation: "scalar",
  creationTimestamp: "scalar",
  managedFields: {
    items: {
      fields: {
        subresource: "scalar",
        time: "scalar",
        fieldsV1: { fields: { "f:spec": { fields: { "f:versions": { fields: {} } } } } },
      },
    },
  },
});

interface Sight {
  readonly key: string;
  /** On the monotonic clock, in milliseconds. */
  readonly seenAt: number;
}

/**
 * Judges new migrations of Kubernetes' own migrator: one of a CRD whose versions changed a moment ago lists the objects before a write
 * that was under way has landed, in the old version, and prunes that version from storedVersions all the same.
 *
 * It prevents accidents: where the CRD cannot be read in time the migration is created.
 */
export class EarlyMigrations {
  readonly #options: EarlyMigrationsOptions;
  readonly #readMs: number;
  readonly #lanes: Promise<unknown>[] = Array.from({ length: LANES }, () => Promise.resolve());
  #nextLane = 0;
  #pending = 0;
  /** By the name of the CRD, the oldest first. */
  readonly #sights = new Map<string, Sight>();

  constructor(options: EarlyMigrationsOptions) {
    this.#options = options;
    this.#readMs = options.readMs ?? READ_MS;
  }

  /** Never rejects. */
  async judge({ group, resource }: InTreeResource): Promise<EarlyVerdict> {
    const crdName = resourceNameOf({ resource, ...(typeof group === "string" ? { group } : {}) });
    const { mode } = this.#options;
    if (mode === "off" || crdName.length > MAX_NAME_LENGTH || !CRD_NAME.test(crdName)) {
      return { decision: "allowed" };
    }
    if (this.#pending >= MAX_PENDING) {
      return unread(crdName, "too many migrations are created at once");
    }
    const signal = this.#options.clock.timeout(this.#readMs);
    this.#pending++;
    try {
      const early = await this.#earlyMigrationOf(crdName, signal);
      return early === undefined ? { decision: "allowed" } : verdictOf(early, mode);
    } catch (error) {
      if (isAbsent(error, crdName)) {
        return { decision: "allowed" };
      }
      return signal.aborted
        ? unread(crdName, `it was not read within ${this.#readMs / 1_000} s`)
        : unread(crdName, "it could not be read; the log of the webhook says why", error);
    } finally {
      this.#pending--;
    }
  }

  async #earlyMigrationOf(crdName: string, signal: AbortSignal): Promise<EarlyMigration | undefined> {
    const { clock, settleMs } = this.#options;
    const { body: crd, serverTime } = await this.#read(crdName, signal);
    const { key, at } = versionsChangeOf(crd);
    const localNow = clock.now();
    return earlyMigrationOf(crd, {
      settleMs,
      serverNow: serverTime ?? localNow,
      localNow,
      now: clock.monotonic(),
      change: { at, seenAt: this.#firstSightOf(crdName, key) },
    });
  }

  /** In the order of the lanes: who stands in line when the time is up never begins. */
  #read(crdName: string, signal: AbortSignal): Promise<ApiResponse<CustomResourceDefinition>> {
    const lane = this.#nextLane++ % LANES;
    const reading = (this.#lanes[lane] ?? Promise.resolve()).then(() => {
      signal.throwIfAborted();
      return this.#readNow(crdName, signal);
    });
    const { clock, pauseMs = PAUSE_MS } = this.#options;
    const pause = (): Promise<void> => new Promise((resolve) => void clock.timer(pauseMs, resolve));
    // One whose time was up before its turn has read nothing.
    this.#lanes[lane] = reading.then(pause, () => (signal.aborted ? undefined : pause()));
    return untilAborted(reading, signal);
  }

  #readNow(name: string, signal: AbortSignal): Promise<ApiResponse<CustomResourceDefinition>> {
    const path = objectPath(CRDS, { name });
    return this.#options.client.transport.read({ method: "GET", path, signal }, async (body) =>
      objectIn((await readProjected(body, FIELDS)) as CustomResourceDefinition, { name, path }),
    );
  }

  #firstSightOf(crdName: string, key: string): number {
    const known = this.#sights.get(crdName);
    if (known?.key === key) {
      return known.seenAt;
    }
    const seenAt = this.#options.clock.monotonic();
    this.#sights.delete(crdName);
    this.#sights.set(crdName, { key, seenAt });
    if (this.#sights.size > MAX_SIGHTS) {
      const [oldest = crdName] = this.#sights.keys();
      this.#sights.delete(oldest);
    }
    return seenAt;
  }
}

function verdictOf(early: EarlyMigration, mode: Exclude<EarlyMode, "off">): EarlyVerdict {
  const decision = mode === "warn" ? "warned" : "denied";
  return { decision, crdName: early.crdName, message: earlyMessage(early, mode), seconds: secondsLeft(early) };
}

function unread(crdName: string, reason: string, error?: unknown): EarlyVerdict {
  const message =
    `cannot tell whether the versions of CustomResourceDefinition "${crdName}" changed a moment ago, so that this migration comes ` +
    `too early: ${reason}`;
  return { decision: "unread", crdName, message, ...(error === undefined ? {} : { error }) };
}
