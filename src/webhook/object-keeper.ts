import type { FastifyBaseLogger } from "fastify";
import { besideHelm, helmMarksOf, type Marks } from "../api/ours.ts";
import type { Clock } from "../clock.ts";
import type { Client } from "../kube/client.ts";
import { isInvalid, whose } from "../kube/errors.ts";
import { type KubeObject, METADATA_LIST } from "../kube/objects.ts";
import { watch } from "../kube/watch.ts";
import { Waker } from "../waker.ts";

/** What an {@link ObjectKeeper} needs. */
export interface ObjectKeeperOptions extends ObjectRepairOptions {
  /** Milliseconds after which the object is looked at although nothing was heard of it. @default 300000 */
  readonly resyncMs?: number;
}

const DEFAULT_RESYNC_MS = 300_000;

/** Between two watches, in milliseconds, where one after the other misses changes. */
const WATCH_INTERVAL_MS = 1_000;

/** Between two looks, in milliseconds. */
const LOOK_INTERVAL_MS = 100;

/** Milliseconds before what failed is tried again: first, and at most. */
const RETRY_MS = 250;
const MAX_RETRY_MS = 15_000;

/**
 * Keeps one cluster-scoped object as it is wanted: a watch sees that it was changed or deleted, and it is restored.
 */
export class ObjectKeeper {
  readonly #options: ObjectKeeperOptions;
  readonly #repair: ObjectRepair;
  readonly #kicked = new Waker();

  constructor(options: ObjectKeeperOptions) {
    this.#options = options;
    this.#repair = new ObjectRepair(options);
  }

  /** Has the object looked at soon. */
  kick(): void {
    this.#kicked.wake();
  }

  /** Runs until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([this.#watchAll(signal), this.#repairAll(signal)]);
  }

  async #repairAll(signal: AbortSignal): Promise<void> {
    const { clock, resyncMs = DEFAULT_RESYNC_MS } = this.#options;
    await this.#retrying(signal, async () => {
      // From here on a kick is for the next round: it may be about a change that this one does not see.
      this.#kicked.begin();
      const lookAgainMs = await this.#look(signal);
      await this.#kicked.wait(Math.min(resyncMs, lookAgainMs), clock, signal);
      await clock.sleep(LOOK_INTERVAL_MS, signal);
    });
  }

  async #watchAll(signal: AbortSignal): Promise<void> {
    const { client, clock, collection, name, observer } = this.#options;
    await this.#retrying(signal, async () => {
      const query = { fieldSelector: `metadata.name=${name}` };
      const { metadata } = await client.list(collection, { query, accept: METADATA_LIST, signal });
      // What happened before this resourceVersion is not seen by the watch.
      this.kick();
      const { resourceVersion } = metadata;
      for await (const event of watch<KubeObject>(client, collection, { resourceVersion, query, signal })) {
        if ("object" in event) observer?.saw(event.type === "DELETED" ? undefined : event.object);
        if (event.type !== "BOOKMARK" && !("object" in event && this.#isRight(event))) this.kick();
      }
      await clock.sleep(WATCH_INTERVAL_MS, signal);
    });
  }

  #isRight({ type, object }: { readonly type: string; readonly object: KubeObject }): boolean {
    return type !== "DELETED" && this.#repair.isRight(object);
  }

  /**
   * A write of another client in between is looked at again: what it wrote may be as it is wanted.
   * @returns milliseconds until the object has to be looked at again, whatever is heard
   */
  async #look(signal: AbortSignal): Promise<number> {
    try {
      return await this.#repair.once(signal);
    } catch (error) {
      if (whose(error) !== "conflict") {
        throw error;
      }
      return 0;
    }
  }

  /** Does `work` again and again, also after it failed. */
  async #retrying(signal: AbortSignal, work: () => Promise<void>): Promise<void> {
    const { clock, collection, logger, name } = this.#options;
    let delayMs = RETRY_MS;
    while (!signal.aborted) {
      try {
        await work();
        delayMs = RETRY_MS;
      } catch (error) {
        if (signal.aborted) {
          return;
        }
        logger.warn({ err: error, collection, name, delayMs }, "Failed to keep an object");
        await clock.sleep(delayMs, signal).catch(() => undefined);
        delayMs = Math.min(2 * delayMs, MAX_RETRY_MS);
      }
    }
  }
}

/** What is told of the kept object whenever it was read. */
export interface ObjectObserver {
  /** The newest resourceVersion that was seen. */
  readonly resourceVersion: string | undefined;
  /**
   * @param live the object as it was read; `undefined` where there is none
   * @param sentAfter for a read from etcd, {@link resourceVersion} as it was when the request was sent. @default it is
   *   no such read
   */
  saw(live: KubeObject | undefined, sentAfter?: string): void;
}

/** What an {@link ObjectRepair} needs. */
interface ObjectRepairOptions extends ObjectWriterOptions {
  readonly clock: Clock;
  readonly logger: Pick<FastifyBaseLogger, "info" | "warn">;
  /**
   * Called with the object as it is whenever it is looked at; `undefined` as long as it is not known how it is to be.
   */
  readonly wanted: (live: KubeObject | undefined) => WantedObject | undefined;
  /**
   * Brings what is wanted up to date before it is written over something else, which may be newer. Where it rejects,
   * nothing is written for now. @default what is wanted never changes
   */
  readonly freshen?: ((signal: AbortSignal) => Promise<void>) | undefined;
  /**
   * Annotations of other clients that an object which was deleted comes back with, where this keeper has seen them.
   * @default none
   */
  readonly carriedAnnotations?: readonly string[] | undefined;
  /** Told of the object whenever it was read. @default none */
  readonly observer?: ObjectObserver | undefined;
}

/**
 * Between two restorations, in milliseconds: the first ones follow at once. Another client that goes on resetting the
 * object is answered less and less often, until it has left the object alone for a while. So a fight costs at most
 * about 20 restorations in its first minute and 6 in each further one, of up to three writes each.
 */
const MIN_INTERVAL_MS = 100;
const MAX_INTERVAL_MS = 10_000;
const PROMPT_RESTORATIONS = 10;
const CALM_MS = 60_000;

/**
 * What is gone stays away for so long before it comes back, in milliseconds. Helm, Flux and Argo CD delete a webhook
 * configuration first and roles later, while replicas still run: one that comes back at once is left in a cluster
 * without a webhook. Until then the roles are gone, or the replica has been stopped.
 *
 * https://github.com/helm/helm/blob/20a1ca2345a667ecb611aed87b5c515c334c3de8/pkg/release/v1/util/kind_sorter.go (UninstallOrder)
 */
const MISSING_MS = 5_000;

type Plan =
  | { readonly kind: "nothing"; readonly lookAgainMs: number }
  | { readonly kind: "restore"; readonly wanted: WantedObject };

const NOTHING: Plan = { kind: "nothing", lookAgainMs: Number.POSITIVE_INFINITY };

/** Looks at one object and restores what is not as it is wanted. */
class ObjectRepair {
  readonly #options: ObjectRepairOptions;
  readonly #writer: ObjectWriter;
  /** Restorations since the object was left alone for a while. */
  #turns = 0;
  #lastTurnAt = Number.NEGATIVE_INFINITY;
  /** Since when there is no object, as far as this keeper saw; `undefined` where there was one when it looked last. */
  #missingSince: number | undefined;
  /**
   * Those of {@link ObjectRepairOptions.carriedAnnotations} that the object with this uid had when it was seen last.
   */
  #carried: { readonly uid: string | undefined; readonly annotations: Readonly<Record<string, string>> } = {
    uid: undefined,
    annotations: {},
  };
  /** What Helm wrote to the object, as it was read last. */
  #ofHelm: Marks = {};

  constructor(options: ObjectRepairOptions) {
    this.#options = options;
    this.#writer = new ObjectWriter(options);
  }

  /** Whether nothing needs to be done about an object. What others wrote to it is remembered. */
  isRight(live: KubeObject): boolean {
    this.#remember(live);
    const wanted = this.#wantedFor(live);
    return wanted !== undefined && this.#isKept(live, wanted);
  }

  /**
   * One look, and what follows from it.
   * @returns milliseconds until the object has to be looked at again, whatever is heard
   * @throws {ApiError} Conflict where another client wrote in between; what the requests and `freshen` throw.
   */
  async once(signal: AbortSignal): Promise<number> {
    const first = this.#planFor(await this.#read(signal));
    if (first.kind === "nothing") {
      return first.lookAgainMs;
    }
    await this.#takeTurn(signal);
    // In this order: what is wanted is then as new as what it is written over.
    const found = await this.#read(signal);
    await this.#options.freshen?.(signal);
    const plan = this.#planFor(found);
    if (plan.kind === "restore") {
      await this.#restore(plan.wanted, found, signal);
    }
    return 0;
  }

  async #read(signal: AbortSignal): Promise<KubeObject | undefined> {
    const { client, clock, observer } = this.#options;
    const sentAfter = observer?.resourceVersion;
    const found = await client.find<KubeObject>(pathOf(this.#options), { signal });
    observer?.saw(found, sentAfter);
    if (found === undefined) {
      this.#missingSince ??= clock.monotonic();
    } else {
      this.#remember(found);
    }
    return found;
  }

  #wantedFor(live: KubeObject | undefined): WantedObject | undefined {
    const wanted = this.#options.wanted(live);
    return wanted && besideHelm(wanted, live ?? { metadata: this.#ofHelm });
  }

  #remember(live: KubeObject): void {
    const { carriedAnnotations = [] } = this.#options;
    const { annotations = {}, uid } = live.metadata;
    this.#ofHelm = helmMarksOf(live.metadata);
    this.#missingSince = undefined;
    if (!this.#lacksCarried(live)) {
      const carried = Object.entries(annotations).filter(([name]) => carriedAnnotations.includes(name));
      this.#carried = { uid, annotations: Object.fromEntries(carried) };
    }
  }

  /** Whether an object took the place of one that had annotations to carry over, and does not have them yet. */
  #lacksCarried({ metadata: { annotations = {}, uid } }: KubeObject): boolean {
    const { uid: before, annotations: carried } = this.#carried;
    return uid !== before && Object.keys(carried).some((name) => !Object.hasOwn(annotations, name));
  }

  #isKept(live: KubeObject, wanted: WantedObject): boolean {
    return this.#writer.isKept(live, wanted) && !this.#lacksCarried(live);
  }

  #planFor(live: KubeObject | undefined): Plan {
    const wanted = this.#wantedFor(live);
    if (wanted === undefined) {
      return NOTHING;
    }
    if (live === undefined) {
      const lookAgainMs = this.#missingForMs();
      return lookAgainMs > 0 ? { kind: "nothing", lookAgainMs } : { kind: "restore", wanted };
    }
    return this.#isKept(live, wanted) ? NOTHING : { kind: "restore", wanted };
  }

  /** How long an object that is gone still stays away, in milliseconds. */
  #missingForMs(): number {
    const now = this.#options.clock.monotonic();
    return (this.#missingSince ?? now) + MISSING_MS - now;
  }

  async #takeTurn(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options;
    if (clock.monotonic() - this.#lastTurnAt > CALM_MS) this.#turns = 0;
    const late = Math.max(0, this.#turns++ - PROMPT_RESTORATIONS);
    if (late === 1) {
      logger.warn(this.#facts(), "Another client keeps changing an object; restoring it less often");
    }
    const nextAt = this.#lastTurnAt + Math.min(MAX_INTERVAL_MS, MIN_INTERVAL_MS * 2 ** late);
    await clock.sleep(Math.max(0, nextAt - clock.monotonic()), signal);
    this.#lastTurnAt = clock.monotonic();
  }

  async #restore(wanted: WantedObject, found: KubeObject | undefined, signal: AbortSignal): Promise<void> {
    const { logger, observer } = this.#options;
    let live = await this.#writer.apply(wanted, found, signal);
    observer?.saw(live);
    logger.info({ ...this.#facts(), wasMissing: found === undefined }, "Restored object");
    if (!isAsWanted(live, wanted)) {
      live = await this.#writer.replace(live, wanted, signal);
      logger.info(this.#facts(), "Removed what another client had added to object");
    }
    // Not applied: what is applied and later left out is taken away.
    if (this.#lacksCarried(live)) {
      live = await this.#writer.annotate(live, this.#carried.annotations, signal);
      this.#carried = { ...this.#carried, uid: live.metadata.uid };
    }
  }

  #facts(): { readonly collection: string; readonly name: string } {
    const { collection, name } = this.#options;
    return { collection, name };
  }
}

/** The field manager of what is kept in force. It is not that of the runs, which own the guards of single CRDs. */
export const KEEPER_FIELD_MANAGER = "ksvm-webhook-configuration";

/** An object that is kept: a name, and the fields that are wanted. */
export interface WantedObject {
  readonly apiVersion?: string;
  readonly kind?: string;
  readonly metadata: Marks & { readonly name: string };
}

/** Fields that one manager applies. */
export interface AppliedPart {
  readonly fieldManager: string;
  readonly fields: WantedObject;
}

/** What an {@link ObjectWriter} needs. */
interface ObjectWriterOptions {
  readonly client: Client;
  /** The path of the collection that the object is in. */
  readonly collection: string;
  readonly name: string;
  /**
   * What is applied, one after the other, over what is there, until that is as it is wanted.
   * @default all that is wanted, as {@link KEEPER_FIELD_MANAGER}
   */
  readonly parts?: ((wanted: WantedObject, live: KubeObject | undefined) => readonly AppliedPart[]) | undefined;
  /** Whether the fields of an object that is as wanted have the managers that they are to have. @default they have */
  readonly isOwned?: ((live: KubeObject, wanted: WantedObject) => boolean) | undefined;
  /** The body of a merge patch that takes out of the live object what was added to it. */
  readonly replacement: (live: KubeObject, wanted: WantedObject) => object;
}

/**
 * Writes one object that is kept, always on top of what was read: Conflict means that another client wrote in between.
 */
class ObjectWriter {
  readonly #options: ObjectWriterOptions;

  constructor(options: ObjectWriterOptions) {
    this.#options = options;
  }

  /** Whether an object is as it is wanted, and owned as it is to be. */
  isKept(live: KubeObject | undefined, wanted: WantedObject): boolean {
    const { isOwned } = this.#options;
    return live !== undefined && isAsWanted(live, wanted) && (isOwned?.(live, wanted) ?? true);
  }

  /**
   * Applies what is wanted.
   * @returns what the object then is; with additions of others it may still not be as it is wanted
   */
  async apply(wanted: WantedObject, found: KubeObject | undefined, signal: AbortSignal): Promise<KubeObject> {
    const { parts = allAtOnce } = this.#options;
    let live = found;
    try {
      for (const part of parts(wanted, found)) {
        if (!this.isKept(live, wanted)) {
          live = await this.applyPart(part, live, signal);
        }
      }
    } catch (error) {
      // What is wanted and what another client added can be invalid together, such as a url beside a service.
      if (live === undefined || !isInvalid(error)) {
        throw error;
      }
    }
    if (live === undefined) throw new TypeError(`Cannot restore "${wanted.metadata.name}": no part of it is applied`);
    return live;
  }

  /** Applies the fields of one manager alone. */
  applyPart(
    { fieldManager, fields }: AppliedPart,
    live: KubeObject | undefined,
    signal: AbortSignal,
  ): Promise<KubeObject> {
    const { resourceVersion, uid } = live?.metadata ?? {};
    const body = live === undefined ? fields : { ...fields, metadata: { ...fields.metadata, uid, resourceVersion } };
    return this.#options.client.apply<KubeObject>(pathOf(this.#options), body, { fieldManager, signal });
  }

  /** Puts what is wanted in the place of what is there: server-side apply leaves alone what others added. */
  replace(live: KubeObject, wanted: WantedObject, signal: AbortSignal): Promise<KubeObject> {
    return this.#merge(live, this.#options.replacement(live, wanted), signal);
  }

  /** Changes annotations, and nothing else. */
  annotate(
    live: KubeObject,
    annotations: Readonly<Record<string, string | null>>,
    signal: AbortSignal,
  ): Promise<KubeObject> {
    return this.#merge(live, { metadata: { annotations } }, signal);
  }

  #merge(live: KubeObject, change: { readonly metadata?: object }, signal: AbortSignal): Promise<KubeObject> {
    // What is carried over of the live object may have changed in between: then the resourceVersion refuses the write.
    const { resourceVersion } = live.metadata;
    const body = { ...change, metadata: { ...change.metadata, resourceVersion } };
    const options = { fieldManager: KEEPER_FIELD_MANAGER, signal };
    return this.#options.client.patch<KubeObject>(pathOf(this.#options), body, options);
  }
}

function pathOf({ collection, name }: Pick<ObjectWriterOptions, "collection" | "name">): string {
  return `${collection}/${name}`;
}

function allAtOnce(fields: WantedObject): readonly AppliedPart[] {
  return [{ fieldManager: KEEPER_FIELD_MANAGER, fields }];
}

/**
 * Whether an object is as it is wanted: every field of `wanted` is there with the same value, and one that is `undefined` is not there. Fields
 * that `wanted` does not name may be there, such as defaults and status, except in an object that is wanted empty; lists have to be the
 * same item by item. So an added webhook, rule, match condition or selector is drift.
 */
export function isAsWanted(live: unknown, wanted: unknown): boolean {
  if (Array.isArray(wanted)) {
    return (
      Array.isArray(live) &&
      live.length === wanted.length &&
      wanted.every((item, index) => isAsWanted(live[index], item))
    );
  }
  if (typeof wanted !== "object" || wanted === null) {
    return live === wanted;
  }
  const fields = Object.entries(wanted);
  return (
    typeof live === "object" &&
    live !== null &&
    (fields.length > 0 || Object.keys(live).length === 0) &&
    fields.every(([name, value]) => isAsWanted((live as Readonly<Record<string, unknown>>)[name], value))
  );
}

/**
 * What a merge patch has to say to leave of an object what is wanted: null takes out a field that is to be absent. Lists are replaced whole. An
 * object that is wanted empty is left as it is.
 *
 * https://www.rfc-editor.org/rfc/rfc7396
 */
export function mergePatchTo(wanted: unknown): unknown {
  if (wanted === undefined) {
    return null;
  }
  if (typeof wanted !== "object" || wanted === null || Array.isArray(wanted)) {
    return wanted;
  }
  return Object.fromEntries(Object.entries(wanted).map(([name, value]) => [name, mergePatchTo(value)]));
}
