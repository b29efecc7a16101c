import type { Logger } from "pino";
import type { ObjectMeta } from "../api/meta.ts";
import type { Clock } from "../clock.ts";
import { cutText } from "../cut-text.ts";
import { messageOf } from "../errors.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { EVENTS } from "../old/kube/resources.ts";

/** What a core/v1 Event says. */
export interface EventText {
  readonly type: "Normal" | "Warning";
  /** One word in upper camel case. */
  readonly reason: string;
  readonly message: string;
}

/** An object that an Event is about; cluster-scoped. */
export interface EventTarget {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: Pick<ObjectMeta, "name" | "uid">;
}

/** Events of cluster-scoped objects live here; `kubectl describe` looks for them here, too. */
const EVENT_NAMESPACE = "default";
const COMPONENT = "ksvm";
/** https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/apis/core/validation/events.go */
const MAX_MESSAGE_LENGTH = 1_024;
/** Of the object's name in the Event's, so that there is room for the rest. */
const MAX_NAME_LENGTH = 220;
const WRITE_TIMEOUT_MS = 10_000;

/** Writes Events. They are for people: one that cannot be written is logged, and nothing else comes of it. */
export class EventRecorder {
  readonly #client: ApiClient;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #under = new Set<Promise<void>>();

  constructor(options: { readonly client: ApiClient; readonly clock: Clock; readonly logger: Logger }) {
    this.#client = options.client;
    this.#clock = options.clock;
    this.#logger = options.logger;
  }

  /** Writes an Event, without waiting for it. */
  record(target: EventTarget, text: EventText): void {
    const write = this.#write(target, text).finally(() => this.#under.delete(write));
    this.#under.add(write);
  }

  /** Waits for what is under way. */
  async close(): Promise<void> {
    await Promise.all(this.#under);
  }

  async #write({ apiVersion, kind, metadata: { name, uid } }: EventTarget, text: EventText): Promise<void> {
    const now = new Date(this.#clock.now()).toISOString().replace(/\.\d+Z$/, "Z");
    const event = {
      apiVersion: "v1",
      kind: "Event",
      metadata: { namespace: EVENT_NAMESPACE, generateName: `${name.slice(0, MAX_NAME_LENGTH)}.` },
      involvedObject: { apiVersion, kind, name, uid },
      type: text.type,
      reason: text.reason,
      message: cutText(text.message, MAX_MESSAGE_LENGTH),
      source: { component: COMPONENT },
      firstTimestamp: now,
      lastTimestamp: now,
      count: 1,
    };
    try {
      await this.#client.create(EVENTS, event, { signal: this.#clock.timeout(WRITE_TIMEOUT_MS) });
    } catch (error) {
      this.#logger.debug({ reason: text.reason, message: messageOf(error) }, "Cannot write an Event");
    }
  }
}
