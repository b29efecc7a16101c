import { REWRITE_FIELD_MANAGER } from "../api/names.ts";
import { KsvmError, messageOf } from "../errors.ts";
import type { Client } from "../kube/client.ts";
import { ApiError, isInvalid, whose } from "../kube/errors.ts";
import {
  APPLY_PATCH,
  apiVersion,
  collectionPath,
  type Crd,
  hasConversionWebhook,
  isLater,
  type KubeList,
  type KubeObject,
  type ManagedFieldsEntry,
  MERGE_PATCH,
  METADATA,
  METADATA_LIST,
  type ObjectMeta,
  objectPath,
  type Resource,
  storageVersion,
} from "../kube/objects.ts";
import { Pages } from "../kube/pages.ts";
import { pauseAfter, retry } from "../kube/retry.ts";
import { assertMigratable, notServed } from "./crd-state.ts";
import type { Limiter } from "./limiter.ts";
import { areSame, namesOther, renamed, withoutGone, withoutOwn } from "./managed-fields.ts";
import type { Checkpoint, Position } from "./run-lease.ts";
import { newTally, type Tally } from "./types.ts";

/** How the objects of a resource are written. */
export interface Target {
  /** In the version that requests go to. */
  readonly resource: Resource;
  readonly kind: string;
  /** The `apiVersion` in which the objects are to be stored, and which their managedFields are to name. */
  readonly storedAs: string;
  /** The other served versions, for lists that fail in that one. */
  readonly otherVersions: readonly string[];
  /** The managedFields that an object is to have; `undefined` where they stay as they are. */
  readonly wantedFields: (entries: readonly ManagedFieldsEntry[]) => readonly ManagedFieldsEntry[] | undefined;
  /** Whether a webhook converts them. */
  readonly isConverted: boolean;
  /** Whether objects that their own schema rejects can be written through their status. */
  readonly hasStatus: boolean;
}

/** On a CRD: versions that are about to leave it, with commas between them. */
export const LEAVING_VERSIONS = "ksvm.sigs.k8s.io/leaving-versions";

/**
 * The objects of a CRD: in the storage version where it is served, so that nothing is converted, else in another one.
 * @throws {KsvmError} ResourceNotMigratable where that would lose fields, or nothing is served
 */
export function targetOf(crd: Crd): Target {
  const { group, names, versions } = crd.spec;
  const storage = storageVersion(crd);
  const served = versions.filter((version) => version.served);
  assertMigratable(crd, notServed(crd));
  const requested = served.find(({ name }) => name === storage) ?? served[0];
  const version = requested?.name ?? storage;
  const isConverted = hasConversionWebhook(crd);
  const storedAs = apiVersion({ group, version: storage });
  const leaving = crd.metadata.annotations?.[LEAVING_VERSIONS]?.split(",") ?? [];
  const isThere = (one: string): boolean => versions.some(({ name }) => name === one) && !leaving.includes(one);
  return {
    resource: { group, version, plural: names.plural },
    kind: names.kind,
    storedAs,
    otherVersions: served.flatMap(({ name }) => (name === version ? [] : [name])),
    isConverted,
    wantedFields: (entries) => (isConverted ? withoutGone(entries, storedAs, isThere) : renamed(entries, storedAs)),
    hasStatus: requested?.subresources?.status !== undefined,
  };
}

export interface RewriteOptions {
  readonly limiter: Limiter;
  /** What an earlier attempt left for the same epoch. */
  readonly resume?: Checkpoint | undefined;
  readonly dryRun?: boolean;
  readonly signal: AbortSignal;
  /**
   * Throws where the CRD is another one by now. Asked after the first list of all, and before an object is written that
   * another client wrote since: with a newer schema it may have fields that an API server which is behind would drop.
   * @default nothing can change
   */
  readonly assertCurrent?: (() => Promise<void>) | undefined;
  /** Told where a later attempt may go on: before the first page, and after each. */
  readonly onPage: (position: Position, tally: Tally) => void;
  /** Told about once a second. */
  readonly onProgress: (tally: Tally) => void;
}

/** A page has as many objects as so many times the requests that are under way. */
const ROUNDS_PER_PAGE = 32;

/** Without progress for so long an attempt ends: nothing stays frozen for longer than that for nothing. */
export const MAX_STALL_MS = 300_000;

/**
 * Has every object stored in the storage version by a write that changes nothing else. One that fails is named, and the
 * others go on.
 *
 * @throws {ApiError} of a webhook that keeps failing for all objects, or of rights that were lost: the attempt ends;
 * {Stalled} where nothing gets further
 */
export async function rewriteAll(client: Client, target: Target, options: RewriteOptions): Promise<Tally> {
  const { limiter, onPage, resume } = options;
  const tally = newTally();
  if (resume?.isDone === true) return tally;
  const stall = new AbortController();
  const signal = AbortSignal.any([options.signal, stall.signal]);
  const rewriter = new Rewriter(client, target, tally, { ...options, signal });
  const stallTimer = rewriter.endWhenStalled(stall);
  const pages = new Pages(client, pathsOf(target), signal);
  try {
    let { continueToken, watermark } = resume ?? {};
    let next: Promise<{ page: Awaited<ReturnType<Pages["list"]>> }> | undefined;
    let listed = 0;
    let cleanToken = continueToken;
    // A page takes the API server the longer the more objects it has, and other clients wait meanwhile.
    const list = async () => ({ page: await pages.list(continueToken, ROUNDS_PER_PAGE * limiter.limit) });
    do {
      const { page } = await (next ?? list());
      continueToken = page.metadata.continue || undefined;
      listed += page.items.length;
      tally.total = listed + (page.metadata.remainingItemCount ?? 0);
      if (watermark === undefined) {
        watermark = page.metadata.resourceVersion;
        await options.assertCurrent?.();
        // From here on the run is half done, which a later one must know.
        onPage({ watermark }, tally);
      }
      // The next page is listed while this one is written.
      next = continueToken === undefined ? undefined : list();
      next?.catch(() => undefined);
      const since = watermark;
      await limiter.forEach(page.items, ({ metadata }) => rewriter.rewrite(metadata, since), signal);
      // An object that failed lies before the token: whoever went on there would miss it.
      if (tally.failed === 0) cleanToken = continueToken;
      onPage({ watermark, ...(cleanToken === undefined ? {} : { continueToken: cleanToken }) }, tally);
    } while (next !== undefined);
    if (tally.failed === 0) onPage({ watermark, isDone: true }, tally);
    return tally;
  } catch (error) {
    throw stall.signal.aborted && !options.signal.aborted ? stall.signal.reason : error;
  } finally {
    // Ends a page that is being listed ahead.
    stall.abort();
    await stallTimer;
  }
}

function pathsOf({ otherVersions, resource }: Target): readonly string[] {
  return [resource.version, ...otherVersions].map((version) => collectionPath({ ...resource, version }));
}

/**
 * Tries one write as a dry run: a webhook that is down and rights that are missing show here, before anything is
 * frozen. An object that is refused by itself is no reason to stop.
 *
 * @throws {ApiError} of a webhook or an API server
 */
export async function tryOneWrite(client: Client, target: Target, signal: AbortSignal): Promise<void> {
  const page = await new Pages(client, pathsOf(target), signal).list();
  const [first] = page.items;
  if (first === undefined) return;
  const write = { object: first.metadata, fields: target.wantedFields(first.metadata.managedFields ?? []) };
  await retry(client, () => send(client, target, write, { dryRun: true, signal }), { signal }).catch(
    (error: unknown) => {
      const kind = whose(error);
      if (kind === undefined || kind === "webhook" || kind === "apiServer" || kind === "rights") throw error;
    },
  );
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
 * Writes one object as it is, with its uid and resourceVersion as preconditions, so that it can neither create an
 * object nor undo another client's write. The API server stores it again where it is stored otherwise.
 *
 * A server-side apply that owns no field, since a merge patch wipes all managedFields while a conversion webhook is
 * down (https://github.com/kubernetes/kubernetes/issues/136919). A merge patch where an apply would give an object
 * without managedFields an owner of every field, and where managedFields change: an apply must not carry them. Where
 * some of them name another version still, the conversion webhook has to be there then.
 */
async function send(
  client: Client,
  target: Target,
  { fields, isMergePatch, isThroughStatus = false, object }: Write,
  { dryRun, signal }: { readonly dryRun: boolean; readonly signal: AbortSignal },
): Promise<ObjectMeta> {
  const { kind, resource } = target;
  const { managedFields = [], name, namespace, resourceVersion, uid } = object;
  const isMerge = isMergePatch ?? (fields !== undefined || managedFields.length === 0);
  // Through the status, managedFields stay as they are.
  const changed = isThroughStatus ? undefined : fields;
  const metadata = { name, namespace, uid, resourceVersion, managedFields: changed };
  const body = { apiVersion: apiVersion(resource), kind, metadata };
  const path = `${objectPath(resource, object)}${isThroughStatus ? "/status" : ""}`;
  const options = { accept: METADATA, dryRun, fieldManager: REWRITE_FIELD_MANAGER, signal };
  if (changed?.some((entry) => namesOther(entry, body.apiVersion)) === true)
    await tryToConvert(client, target, object, signal);
  return (await client.patch<KubeObject>(path, body, options, isMerge ? MERGE_PATCH : APPLY_PATCH)).metadata;
}

/**
 * Tries a write that takes the conversion webhook, where there is one: in another version.
 * @throws {ApiError} where that webhook is down; whatever else fails shows in the write itself
 */
async function tryToConvert(client: Client, target: Target, object: ObjectMeta, signal: AbortSignal): Promise<void> {
  const version = target.isConverted ? target.otherVersions[0] : undefined;
  if (version === undefined) return;
  const other = { ...target, resource: { ...target.resource, version } };
  await send(client, other, { object, isMergePatch: true }, { dryRun: true, signal }).catch((error: unknown) => {
    if (whose(error) === "webhook" && / conversion webhook for /.test((error as ApiError).message)) throw error;
  });
}

/** How long one object may fail for in milliseconds, before it is asked whether that is its own failure. */
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
  /** On the monotonic clock: when the last object was done. */
  #doneAt: number;
  #toldAt = Number.NEGATIVE_INFINITY;
  /** The last one that was written, or was found to be. */
  #written: ObjectMeta | undefined;
  /** The last failure that was not of an object. */
  #failure: unknown;

  constructor(client: Client, target: Target, tally: Tally, options: RewriteOptions) {
    this.#client = client;
    this.#target = target;
    this.#tally = tally;
    this.#options = options;
    this.#doneAt = client.clock.monotonic();
  }

  #tell(): void {
    const now = this.#client.clock.monotonic();
    if (now - this.#toldAt < TELL_EVERY_MS) return;
    this.#toldAt = now;
    this.#options.onProgress(this.#tally);
  }

  /** Aborts once nothing got further for {@link MAX_STALL_MS}. Ends when aborted. */
  async endWhenStalled(abort: AbortController): Promise<void> {
    const { clock } = this.#client;
    while (!abort.signal.aborted) {
      const leftMs = this.#doneAt + MAX_STALL_MS - clock.monotonic();
      if (leftMs <= 0) abort.abort(new Stalled(this.#failure));
      else await clock.sleep(leftMs, abort.signal).catch(() => undefined);
    }
  }

  async rewrite(listed: ObjectMeta, watermark: string): Promise<void> {
    const { dryRun = false, limiter, signal } = this.#options;
    let write = this.#writeOf(listed);
    let failingSince: number | undefined;
    let isOtherWritable = false;
    let before: { readonly object: ObjectMeta; readonly isLate: boolean; readonly answer: ObjectMeta } | undefined;
    const conflicts = { explained: 0, unexplained: 0 };
    for (let attempt = 0; ; attempt++) {
      const { object } = write;
      const isLate = isLater(object.resourceVersion, watermark);
      if (isLate && write.fields === undefined) {
        this.#written ??= object;
        return this.#count("newer", object);
      }
      if (isLate && object !== before?.answer) await this.#options.assertCurrent?.();
      try {
        const written = await limiter.observe(() => send(this.#client, this.#target, write, { dryRun, signal }));
        if (written.uid !== object.uid) throw new ApiError("write an object", 0, "the answer is of another object");
        // A default of the schema that the write has added is ours then, and whoever applies that field meets a conflict.
        const others = before === undefined && !dryRun ? withoutOwn(written.managedFields ?? []) : undefined;
        if (others === undefined) return this.#wrote({ ...write, ...before }, written, before?.isLate ?? isLate);
        before = { object, isLate, answer: written };
        write = { object: written, fields: others };
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
              return this.#giveUp(write, error as ApiError, isLate);
            if (!isExplained) await this.#pause(error, attempt);
            // Through the status, managedFields stay as they are.
            write =
              write.isThroughStatus === true ? { ...write, object: found } : { ...write, ...this.#writeOf(found) };
            break;
          }
          case "object": {
            const other = this.#otherWay(write, error as ApiError);
            if (other === undefined) return this.#refused(write, error as ApiError, isLate);
            write = other;
            break;
          }
          case "rights":
          case "webhook":
          case "apiServer": {
            // No run asks for the right to write the status beforehand: few objects take it.
            const isStatus = write.isThroughStatus === true && whose(error) === "rights";
            if (isStatus) return this.#refused(write, error as ApiError, isLate);
            this.#failure = error;
            const now = this.#client.clock.monotonic();
            failingSince ??= now;
            if (now - failingSince >= PATIENCE_MS) {
              // Rights that were lost are lost for all objects.
              if (whose(error) === "rights") throw error;
              const isWebhook = whose(error) === "webhook";
              const mayBeOwn = isWebhook || (error as ApiError).status === 500;
              // Another one could be written between two tries of this one, so it is no outage.
              if (mayBeOwn && isOtherWritable) return this.#giveUp(write, error as ApiError, isLate);
              isOtherWritable = mayBeOwn && (await this.#isOtherWritable(object));
              // The run has to wait for the webhook, without a freeze.
              if (isWebhook && !isOtherWritable) throw error;
            }
            await this.#pause(error, attempt);
          }
        }
      }
    }
  }

  #writeOf(object: ObjectMeta): Write {
    const { managedFields = [] } = object;
    return { object, fields: this.#target.wantedFields(managedFields) ?? withoutOwn(managedFields) };
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

  /** Whether an object can be written, and converted, that was written before: tried as dry runs, as it is now. */
  async #isOtherWritable({ uid }: ObjectMeta): Promise<boolean> {
    const { signal } = this.#options;
    if (this.#written === undefined || this.#written.uid === uid) return false;
    try {
      const other = await this.#look(this.#written);
      if (other === undefined) return false;
      await send(this.#client, this.#target, { object: other }, { dryRun: true, signal });
      await tryToConvert(this.#client, this.#target, other, signal);
      return true;
    } catch {
      return false;
    }
  }

  /**
   * Neither a 404 nor a 409 is proof: a consistent list by name says what is there. `undefined` for another object,
   * too.
   */
  async #look({ name, namespace, uid }: ObjectMeta): Promise<ObjectMeta | undefined> {
    const { signal } = this.#options;
    const path = collectionPath(this.#target.resource, namespace);
    const query = { fieldSelector: `metadata.name=${name}` };
    const list = (): Promise<KubeList<KubeObject>> =>
      this.#client.list<KubeObject>(path, { query, accept: METADATA_LIST, signal });
    // By its uid: an earlier, cluster-scoped CRD may have left it beside one of the same name in a namespace.
    const { items } = await retry(this.#client, list, { signal });
    return items.find(({ metadata }) => metadata.uid === uid)?.metadata;
  }

  async #pause(error: unknown, attempt: number): Promise<void> {
    const { limiter, signal } = this.#options;
    const { clock, random } = this.#client;
    await limiter.aside(() => clock.sleep(pauseAfter(error, attempt, random()), signal));
  }

  #wrote({ fields, object }: Write, written: ObjectMeta, isLate: boolean): void {
    this.#written = written;
    // An API server that cannot read entries drops or alters them: what is there counts, not what was sent.
    const entries = written.managedFields ?? [];
    const isOther = written.generation !== object.generation || (fields !== undefined && !areSame(entries, fields));
    if (isOther) this.#tally.changed++;
    const isSame = written.resourceVersion === object.resourceVersion && this.#options.dryRun !== true;
    this.#count(isLate ? "newer" : isSame ? "current" : "rewritten", { ...object, managedFields: entries });
  }

  #count(outcome: "rewritten" | "current" | "newer" | "gone", { managedFields = [] }: ObjectMeta): void {
    this.#tally[outcome]++;
    const { storedAs } = this.#target;
    const others = new Set(
      managedFields.flatMap((entry) => (namesOther(entry, storedAs) ? (entry.apiVersion ?? "") : [])),
    );
    for (const other of outcome === "gone" ? [] : others) {
      const version = other.slice(other.lastIndexOf("/") + 1);
      this.#tally.fieldVersions[version] = (this.#tally.fieldVersions[version] ?? 0) + 1;
    }
    this.#doneAt = this.#client.clock.monotonic();
    this.#tell();
  }

  /** The API server is there and refuses this one object: that is an end as good as another. */
  #refused(write: Write, error: ApiError, isLate: boolean): void {
    this.#doneAt = this.#client.clock.monotonic();
    this.#giveUp(write, error, isLate);
  }

  /** That brings the run no further: it stalls where objects are given up alone. */
  #giveUp({ object }: Write, { said }: ApiError, isLate: boolean): void {
    // It is stored in the new version. Only its managedFields stay as they were.
    if (isLate) return this.#count("newer", object);
    const { name, namespace } = object;
    // Who may read the status of a migration may not read the object, whose values a message quotes.
    const reason = said.replaceAll(/(Invalid value: )"(?:[^"\\]|\\.)*"/g, "$1…");
    this.#tally.failed++;
    if (this.#tally.failures.length < MAX_NAMED) {
      this.#tally.failures.push({ name, reason, ...(namespace === undefined ? {} : { namespace }) });
    }
    this.#tell();
  }
}

/** No object was done for five minutes. The freeze is lifted, and a later attempt goes on. */
export class Stalled extends KsvmError {
  override readonly name = "Stalled";

  constructor(failure: unknown) {
    const why = failure === undefined ? "" : `; the last failure: ${messageOf(failure)}`;
    super("RetryBudgetExceeded", `Cannot continue: nothing was rewritten for ${MAX_STALL_MS / 60_000} minutes${why}`);
  }
}
