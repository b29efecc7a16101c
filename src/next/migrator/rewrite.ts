import { KsvmError } from "../../errors.ts";
import type { Client } from "../kube/client.ts";
import { ApiError, isInvalid, whose } from "../kube/errors.ts";
import {
  APPLY_PATCH,
  apiVersion,
  collectionPath,
  type Crd,
  hasConversionWebhook,
  isLater,
  type KubeObject,
  type ManagedFieldsEntry,
  MERGE_PATCH,
  METADATA,
  type ObjectMeta,
  objectPath,
  type Resource,
  storageVersion,
} from "../kube/objects.ts";
import { Pages } from "../kube/pages.ts";
import { pauseAfter, retry } from "../kube/retry.ts";
import type { Limiter } from "./limiter.ts";
import { areSame, namesOther, renamed, withoutUnserved } from "./managed-fields.ts";
import type { Checkpoint } from "./run-lease.ts";
import { newTally, type Tally } from "./types.ts";

/** Whose objects are rewritten, and how. */
export interface Target {
  /** In the version that requests go to. */
  readonly resource: Resource;
  readonly kind: string;
  /** The other served versions, for lists that fail in that one. */
  readonly otherVersions: readonly string[];
  /** The managedFields that an object is to have; `undefined` where they stay as they are. */
  readonly wantedFields: (entries: readonly ManagedFieldsEntry[]) => readonly ManagedFieldsEntry[] | undefined;
  /** Whether objects that their own schema rejects can be written through their status. */
  readonly hasStatus: boolean;
}

/** The fields of every no-op write have no owner. */
export const REWRITE_FIELD_MANAGER = "ksvm-rewrite";

/**
 * The objects of a CRD: in the storage version where it is served, so that nothing is converted, else in another one.
 * @throws {KsvmError} ResourceNotMigratable where that would lose fields, or nothing is served
 */
export function targetOf(crd: Crd): Target {
  const { conversion: _, group, names, versions } = crd.spec;
  const storage = storageVersion(crd);
  const served = versions.filter((version) => version.served);
  const requested = served.find(({ name }) => name === storage) ?? served[0];
  const cannot = (reason: string): KsvmError =>
    new KsvmError("ResourceNotMigratable", `Cannot migrate "${crd.metadata.name}": ${reason}`);
  if (requested === undefined) throw cannot("the CRD serves no version; set served: true on one of them first");
  const stored = versions.find(({ name }) => name === storage);
  const isWebhook = hasConversionWebhook(crd);
  // Without a webhook the API server drops what the schema of the requested version does not have.
  if (!isWebhook && JSON.stringify(requested.schema) !== JSON.stringify(stored?.schema)) {
    throw cannot(
      `its storage version "${storage}" is not served, and version "${requested.name}" has another schema, so that each write ` +
        `could drop fields; set served: true on "${storage}" for as long as it takes, then run again`,
    );
  }
  const wanted = apiVersion({ group, version: storage });
  const isServed = (version: string): boolean => served.some(({ name }) => name === version);
  return {
    resource: { group, version: requested.name, plural: names.plural },
    kind: names.kind,
    otherVersions: served.flatMap(({ name }) => (name === requested.name ? [] : [name])),
    wantedFields: (entries) => (isWebhook ? withoutUnserved(entries, wanted, isServed) : renamed(entries, wanted)),
    hasStatus: requested.subresources?.status !== undefined,
  };
}

interface RewriteOptions {
  readonly limiter: Limiter;
  /** What an earlier attempt left for the same epoch. */
  readonly resume?: Checkpoint | undefined;
  readonly dryRun?: boolean;
  readonly signal: AbortSignal;
  /** Told where a later attempt may go on, after each page. */
  readonly onPage: (position: Pick<Checkpoint, "watermark" | "continueToken">, tally: Tally) => void;
  /** Told about once a second. */
  readonly onProgress: (tally: Tally) => void;
}

/** Without progress for so long an attempt ends: nothing stays frozen for longer than that for nothing. */
export const MAX_STALL_MS = 300_000;

/**
 * Has every object stored in the storage version by a write that changes nothing else. One that fails is named, and the
 * others go on.
 *
 * @throws {ApiError} of a webhook or an API server that keeps failing for all objects: the attempt ends, and a later one goes on
 */
export async function rewriteAll(client: Client, target: Target, options: RewriteOptions): Promise<Tally> {
  const { limiter, onPage, resume } = options;
  const tally = newTally();
  const stall = new AbortController();
  const signal = AbortSignal.any([options.signal, stall.signal]);
  const rewriter = new Rewriter(client, target, tally, { ...options, signal });
  const watch = rewriter.endWhenStalled(stall);
  const pages = new Pages(client, pathsOf(target), signal);
  try {
    let { continueToken, watermark } = resume ?? {};
    let next: Promise<{ page: Awaited<ReturnType<Pages["list"]>> }> | undefined;
    let listed = 0;
    do {
      const { page } = await (next ?? pages.list(continueToken).then((page) => ({ page })));
      rewriter.progressed();
      watermark ??= page.metadata.resourceVersion;
      continueToken = page.metadata.continue || undefined;
      listed += page.items.length;
      tally.total = listed + (page.metadata.remainingItemCount ?? 0);
      // The next page is listed while this one is written.
      next = continueToken === undefined ? undefined : pages.list(continueToken).then((page) => ({ page }));
      next?.catch(() => undefined);
      const since = watermark;
      await limiter.forEach(page.items, ({ metadata }) => rewriter.rewrite(metadata, since), signal);
      // An object that failed lies before the token: whoever went on there would miss it.
      onPage({ watermark, ...(tally.failed === 0 && continueToken !== undefined ? { continueToken } : {}) }, tally);
    } while (next !== undefined);
    return tally;
  } catch (error) {
    throw stall.signal.aborted && !options.signal.aborted ? stall.signal.reason : error;
  } finally {
    // Ends a page that is being listed ahead.
    stall.abort();
    await watch;
  }
}

function pathsOf({ otherVersions, resource }: Target): readonly string[] {
  return [resource.version, ...otherVersions].map((version) => collectionPath({ ...resource, version }));
}

/**
 * Tries one write as a dry run: a webhook that is down and rights that are missing show here, before anything is frozen. An
 * object that is refused by itself is no reason to stop.
 *
 * @throws {ApiError} of a webhook or an API server
 */
export async function tryOneWrite(client: Client, target: Target, signal: AbortSignal): Promise<void> {
  const page = await new Pages(client, pathsOf(target), signal).list();
  const [first] = page.items;
  if (first === undefined) return;
  const write = (): Promise<unknown> =>
    send(
      client,
      target,
      { object: first.metadata, fields: target.wantedFields(first.metadata.managedFields ?? []) },
      {
        dryRun: true,
        signal,
      },
    );
  await retry(client, write, { signal }).catch((error: unknown) => {
    const kind = whose(error);
    if (kind === undefined || kind === "webhook" || kind === "apiServer" || kind === "rights") throw error;
  });
}

/** One way to write an object as it is. */
interface Write {
  readonly object: ObjectMeta;
  /** The managedFields that it is to have. @default as they are */
  readonly fields?: readonly ManagedFieldsEntry[] | undefined;
  /** @default a server-side apply where it has managedFields, else a merge patch */
  readonly isMergePatch?: boolean;
  readonly isThroughStatus?: boolean;
}

/**
 * Writes one object as it is, with its uid and resourceVersion as preconditions, so that it can neither create an object nor
 * undo another client's write. The API server stores it again where it is stored otherwise.
 *
 * A server-side apply that owns no field, since a merge patch wipes all managedFields while a conversion webhook is down
 * (https://github.com/kubernetes/kubernetes/issues/136919). A merge patch where an apply would give an object without
 * managedFields an owner of every field, and where managedFields change: an apply must not carry them.
 */
async function send(
  client: Client,
  { kind, resource }: Target,
  { fields, isMergePatch, isThroughStatus = false, object }: Write,
  { dryRun, signal }: { readonly dryRun: boolean; readonly signal: AbortSignal },
): Promise<ObjectMeta> {
  const { managedFields = [], name, namespace, resourceVersion, uid } = object;
  const isMerge = isMergePatch ?? (fields !== undefined || managedFields.length === 0);
  // Through the status, managedFields stay as they are.
  const changed = fields === undefined || isThroughStatus ? {} : { managedFields: fields };
  const metadata = { name, ...(namespace === undefined ? {} : { namespace }), uid, resourceVersion, ...changed };
  const body = { apiVersion: apiVersion(resource), kind, metadata };
  const path = `${objectPath(resource, object)}${isThroughStatus ? "/status" : ""}`;
  const options = { accept: METADATA, dryRun, fieldManager: REWRITE_FIELD_MANAGER, signal };
  return (await client.patch<KubeObject>(path, body, options, isMerge ? MERGE_PATCH : APPLY_PATCH)).metadata;
}

/** How long one object may fail for while others are written, in milliseconds. The next ones get less. */
const PATIENCE_MS = 30_000;
/** How often an object is read again that others write at the same time. */
const MAX_CONFLICTS = 20;
/** How often a conflict may come although nobody wrote the object. */
const MAX_UNEXPLAINED = 5;
const MAX_NAMED = 100;
const TELL_EVERY_MS = 1_000;

/** Rewrites objects one by one, and counts what becomes of them. */
class Rewriter {
  readonly #client: Client;
  readonly #target: Target;
  readonly #tally: Tally;
  readonly #options: RewriteOptions;
  /** On the monotonic clock: when something was listed or done, and when an object was written. */
  #progressAt: number;
  #writtenAt = Number.NEGATIVE_INFINITY;
  #toldAt = Number.NEGATIVE_INFINITY;
  /** Objects that were given up on although the answer was not about them. */
  #givenUp = 0;

  constructor(client: Client, target: Target, tally: Tally, options: RewriteOptions) {
    this.#client = client;
    this.#target = target;
    this.#tally = tally;
    this.#options = options;
    this.#progressAt = client.clock.monotonic();
  }

  progressed(): void {
    const { clock } = this.#client;
    this.#progressAt = clock.monotonic();
    if (this.#progressAt - this.#toldAt < TELL_EVERY_MS) return;
    this.#toldAt = this.#progressAt;
    this.#options.onProgress(this.#tally);
  }

  /** Aborts once nothing got further for {@link MAX_STALL_MS}. Ends when aborted. */
  async endWhenStalled(abort: AbortController): Promise<void> {
    const { clock } = this.#client;
    while (!abort.signal.aborted) {
      const leftMs = this.#progressAt + MAX_STALL_MS - clock.monotonic();
      if (leftMs <= 0) abort.abort(new Stalled());
      else await clock.sleep(leftMs, abort.signal).catch(() => undefined);
    }
  }

  async rewrite(listed: ObjectMeta, watermark: string): Promise<void> {
    const { dryRun = false, limiter, signal } = this.#options;
    let write = this.#writeOf(listed);
    let failingSince: number | undefined;
    const conflicts = { explained: 0, unexplained: 0 };
    for (let attempt = 0; ; attempt++) {
      const { object } = write;
      const isLate = isLater(object.resourceVersion, watermark);
      if (isLate && write.fields === undefined) return this.#count("newer", object);
      try {
        const written = await limiter.observe(() => send(this.#client, this.#target, write, { dryRun, signal }));
        if (written.uid !== object.uid) throw new ApiError("write an object", 0, "the answer is of another object");
        return this.#written(write, written, isLate);
      } catch (error) {
        signal.throwIfAborted();
        switch (whose(error)) {
          case undefined:
            throw error;
          case "conflict":
          case "gone":
          case "expired": {
            const found = await this.#look(object);
            if (found === undefined) return this.#count("gone", object);
            const isExplained = found.resourceVersion !== object.resourceVersion;
            const times = isExplained ? ++conflicts.explained : ++conflicts.unexplained;
            if (times > (isExplained ? MAX_CONFLICTS : MAX_UNEXPLAINED))
              return this.#fail(write, error as ApiError, isLate);
            if (!isExplained) await this.#pause(error, attempt);
            write = { ...write, ...this.#writeOf(found) };
            break;
          }
          case "object": {
            const other = this.#otherWay(write, error as ApiError);
            if (other === undefined) return this.#fail(write, error as ApiError, isLate);
            write = other;
            break;
          }
          case "rights":
          case "webhook":
          case "apiServer":
            failingSince ??= this.#client.clock.monotonic();
            if (await this.#isOfObject(error as ApiError, object, failingSince)) {
              this.#givenUp++;
              return this.#fail(write, error as ApiError, isLate);
            }
            await this.#pause(error, attempt);
        }
      }
    }
  }

  #writeOf(object: ObjectMeta): Write {
    return { object, fields: this.#target.wantedFields(object.managedFields ?? []) };
  }

  /** A denial by admission is never gone around. */
  #otherWay(write: Write, error: ApiError): Write | undefined {
    if (isInvalid(error) && this.#target.hasStatus && write.isThroughStatus !== true) {
      // A write of the status leaves the spec as it is, whatever its schema says by now.
      return { object: write.object, isThroughStatus: true };
    }
    // managedFields name a version that is gone, and the target keeps them.
    const isVersion = /an invalid group\/version/.test(error.said);
    return isVersion && write.isMergePatch !== true ? { ...write, isMergePatch: true } : undefined;
  }

  /**
   * Whether a failure that is not about an object by its words comes from it all the same: it lasts, and others are
   * written meanwhile, or, where an API server failed in no particular way, the object can be read.
   * @throws the failure of a webhook where nothing is written: the run has to wait for it
   */
  async #isOfObject(error: ApiError, object: ObjectMeta, failingSince: number): Promise<boolean> {
    const lastsMs = this.#client.clock.monotonic() - failingSince;
    if (lastsMs < PATIENCE_MS / (1 + this.#givenUp)) return false;
    if (whose(error) === "rights" || this.#writtenAt > failingSince) return true;
    if (lastsMs < PATIENCE_MS) return false;
    if (whose(error) === "webhook") throw error;
    if (error.status !== 500) return false;
    return (await this.#look(object).catch(() => "unknown")) !== "unknown";
  }

  /** Neither a 404 nor a 409 is proof: a consistent list by name says what is there. `undefined` for another object, too. */
  async #look({ name, namespace, uid }: ObjectMeta): Promise<ObjectMeta | undefined> {
    const { signal } = this.#options;
    const path = collectionPath(this.#target.resource, namespace);
    const look = (): Promise<KubeObject | undefined> => this.#client.findListed<KubeObject>(path, name, { signal });
    const found = await retry(this.#client, look, { signal });
    return found?.metadata.uid === uid ? found.metadata : undefined;
  }

  async #pause(error: unknown, attempt: number): Promise<void> {
    const { limiter, signal } = this.#options;
    const { clock, random } = this.#client;
    await limiter.aside(() => clock.sleep(pauseAfter(error, attempt, random()), signal));
  }

  #written({ fields, object }: Write, written: ObjectMeta, isLate: boolean): void {
    this.#writtenAt = this.#client.clock.monotonic();
    if (written.generation !== object.generation) this.#tally.changed++;
    // An API server that cannot read entries drops or alters them: what is there counts, not what was sent.
    const entries = written.managedFields ?? [];
    if (fields !== undefined && !areSame(entries, fields)) this.#tally.changed++;
    const isSame = written.resourceVersion === object.resourceVersion && this.#options.dryRun !== true;
    this.#count(isLate ? "newer" : isSame ? "current" : "rewritten", { ...object, managedFields: entries });
  }

  #count(outcome: "rewritten" | "current" | "newer" | "gone", { managedFields = [] }: ObjectMeta): void {
    this.#tally[outcome]++;
    const wanted = apiVersion(this.#target.resource);
    const others = new Set(
      managedFields.flatMap((entry) => (namesOther(entry, wanted) ? (entry.apiVersion ?? "") : [])),
    );
    for (const other of outcome === "gone" ? [] : others) {
      const version = other.slice(other.lastIndexOf("/") + 1);
      this.#tally.fieldVersions[version] = (this.#tally.fieldVersions[version] ?? 0) + 1;
    }
    this.progressed();
  }

  #fail({ object }: Write, { said }: ApiError, isLate: boolean): void {
    // It is stored in the new version. Only its managedFields stay as they were.
    if (isLate) return this.#count("newer", object);
    const { name, namespace } = object;
    this.#tally.failed++;
    if (this.#tally.failures.length < MAX_NAMED) {
      this.#tally.failures.push({ name, reason: said, ...(namespace === undefined ? {} : { namespace }) });
    }
    this.progressed();
  }
}

/** Nothing got further for five minutes. The freeze is lifted, and a later attempt goes on. */
export class Stalled extends KsvmError {
  override readonly name = "Stalled";

  constructor() {
    super("RetryBudgetExceeded", `Cannot continue: nothing was rewritten for ${MAX_STALL_MS / 60_000} minutes`);
  }
}
