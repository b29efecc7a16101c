import { parseStorageState, type ReadStorageState } from "../api/parse-storage-state.ts";
import type { Client } from "../kube/client.ts";
import { ApiError, isConversionRefusal, isForbidden, unlessForbidden, whose } from "../kube/errors.ts";
import {
  apiVersion,
  collectionPath,
  type Crd,
  CRDS,
  hasConversionWebhook,
  type KubeObject,
  METADATA,
  METADATA_LIST,
  objectPath,
  type ObjectMeta,
  storageVersion,
} from "../kube/objects.ts";
import { Pages } from "../kube/pages.ts";
import { retry } from "../kube/retry.ts";

/*
 * What a cluster holds. Everything is read once and page by page, and nothing is kept of it but what a view shows, so
 * that a thousand CRDs and a million objects take no more memory than a few.
 */

/** CRDs on one page: one may have a megabyte and a half. */
const CRDS_PER_PAGE = 20;

/** Every CRD, schemas included. */
export function everyCrd(client: Client, signal: AbortSignal): AsyncGenerator<Crd, void> {
  return everyItem<Crd>(client, CRDS, signal, { limit: CRDS_PER_PAGE });
}

/** The metadata of every CRD. */
export function everyCrdMetadata(client: Client, signal: AbortSignal): AsyncGenerator<KubeObject, void> {
  return everyItem<KubeObject>(client, CRDS, signal, { accept: METADATA_LIST });
}

/** The CRD of this name as it is now; `undefined` where there is none. A name without a dot is never a CRD's. */
export async function findCrd(client: Client, name: string, signal: AbortSignal): Promise<Crd | undefined> {
  if (!name.includes(".")) return undefined;
  return ask(client, () => client.find<Crd>(`${CRDS}/${encodeURIComponent(name)}`, { signal }), signal);
}

/** Reads for a user who waits for the answer: what passes by itself is waited for, a right that is missing is not. */
export async function ask<T>(client: Client, read: () => Promise<T>, signal: AbortSignal): Promise<T> {
  const answer = await retry(client, () => read().then((value) => ({ value }), refused), { signal });
  if ("error" in answer) throw answer.error;
  return answer.value;
}

function refused(error: unknown): { readonly error: ApiError } {
  if (isForbidden(error)) return { error };
  throw error;
}

/** The items of a list; none where it is not served. @throws {ApiError} */
export async function* everyItem<T>(
  client: Client,
  path: string,
  signal: AbortSignal,
  { limit = 100, ...options }: { readonly limit?: number; readonly accept?: string } = {},
): AsyncGenerator<T, void> {
  let token: string | undefined;
  do {
    const query = { limit, continue: token };
    const page = await ask(client, () => client.list<T>(path, { ...options, query, signal }), signal).catch(
      (error: unknown) => {
        if (whose(error) === "gone" && token === undefined) return undefined;
        throw error;
      },
    );
    yield* page?.items ?? [];
    token = page?.metadata.continue || undefined;
  } while (token !== undefined);
}

const STORAGE_STATES = "/apis/migration.k8s.io/v1alpha1/storagestates";

/** The StorageStates by the name of their resource; none where they are not served, or this user may not list them. */
export async function readStorageStates(
  client: Client,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, ReadStorageState>> {
  const states = new Map<string, ReadStorageState>();
  const read = async (): Promise<void> => {
    for await (const item of everyItem(client, STORAGE_STATES, signal)) {
      const { object } = parseStorageState(item);
      if (object !== undefined) states.set(object.metadata.name, object);
    }
  };
  await unlessForbidden(read());
  return states;
}

/** Milliseconds to wait for what passes by itself: a user waits for the answer. */
const PATIENCE_MS = 5_000;

/** Objects whose managedFields name versions that are asked for. Field names are those of `-o json`. */
export interface FieldVersions {
  /** How many objects name one of the versions. */
  readonly objects: number;
  /** The versions that they name, without the group, sorted. */
  readonly versions: readonly string[];
  /** How many objects were looked at: all, or the first ones. */
  readonly lookedAt: number;
  /** Whether there are more. */
  readonly isPartial: boolean;
}

/** `managedFields of 3 of 40 objects name v1alpha1`. */
export function fieldVersionsText({ isPartial, lookedAt, objects, versions }: FieldVersions): string {
  const first = isPartial ? "the first " : "";
  return `managedFields of ${objects} of ${first}${lookedAt} objects name ${versions.join(", ")}`;
}

/** What listing the objects of a resource shows. */
export interface FoundObjects {
  /** Missing where they cannot be listed. */
  readonly count?: number;
  /** Why they cannot be listed, in the words of the API server. */
  readonly problem?: string;
  /** The version of objects that the API server cannot decode, because the CRD no longer has it. */
  readonly unreadableIn?: string;
  /** Why the API server cannot call the conversion webhook; missing where nothing shows that. */
  readonly conversionProblem?: string;
  /** Missing where that was not asked, or no object names a version that is asked for. */
  readonly fieldVersions?: FieldVersions;
}

/** Where the objects of a resource are listed. */
interface Listed {
  readonly group: string;
  readonly plural: string;
  /** Those that are served, the one to ask in first: any other will do where one is refused. */
  readonly versions: readonly string[];
  /** Whether a webhook converts between them, which is to be asked. @default false */
  readonly hasWebhook?: boolean;
}

/** Where the objects of a CRD are listed: in the storage version first, which takes no conversion. */
export function objectsOf({ metadata, spec }: Crd): Listed {
  const storage = storageVersion({ metadata, spec });
  const served = spec.versions.flatMap((version) => (version.served ? [version.name] : []));
  const versions = served.toSorted((a, b) => Number(b === storage) - Number(a === storage));
  return { group: spec.group, plural: spec.names.plural, versions, hasWebhook: hasConversionWebhook({ spec }) };
}

/** Of so many objects the metadata is looked at: 20 MB. */
const MAX_LOOKED_AT = 10_000;
/** No object has it: the answer is empty, and the API server decodes every object for it, or has for its cache. */
const NO_OBJECT = "ksvm.sigs.k8s.io/no-object";

/**
 * Counts the objects of a resource. Where managedFields are asked about, the API server also decodes every object.
 *
 * @param isAsked about which versions in managedFields. @default none, which costs a list of one object
 * @throws the signal's reason. What the API server says otherwise is in the result.
 */
export async function lookAtObjects(
  client: Client,
  listed: Listed,
  signal: AbortSignal,
  isAsked?: (version: string) => boolean,
): Promise<FoundObjects> {
  const { group, hasWebhook = false, plural, versions } = listed;
  const paths = versions.map((version) => collectionPath({ group, plural, version }));
  const list = (path: string, query: Readonly<Record<string, string | number>>) =>
    client.list<KubeObject>(path, { query, accept: METADATA_LIST, signal });
  try {
    const first = await firstOf(paths, (path) =>
      // Only what the API server itself may do better next time is sent again: a webhook that is down is an answer.
      list(path, { limit: 1 }).catch((error: unknown) => {
        if (whose(error) !== "apiServer") throw error;
        return retry(client, () => list(path, { limit: 1 }), { signal, forMs: PATIENCE_MS });
      }),
    );
    const object = first.items[0]?.metadata;
    const problem = hasWebhook && object ? await conversionProblem(client, listed, object, signal) : undefined;
    const found = problem === undefined ? {} : { conversionProblem: problem };
    const count = first.items.length + (first.metadata.remainingItemCount ?? 0);
    if (isAsked === undefined) return { count, ...found };
    const fieldVersions = await countFieldVersions(
      new Pages(client, paths, signal, METADATA_LIST, PATIENCE_MS),
      group,
      isAsked,
    );
    if (fieldVersions.isPartial) {
      const probe = (): Promise<unknown> =>
        firstOf(paths, (path) => list(path, { labelSelector: NO_OBJECT, limit: 1 }));
      await retry(client, probe, { signal, forMs: PATIENCE_MS });
    }
    return { count, ...found, ...(fieldVersions.objects === 0 ? {} : { fieldVersions }) };
  } catch (error) {
    signal.throwIfAborted();
    if (!(error instanceof ApiError)) throw error;
    const unreadableIn = lostVersion(error.said);
    return {
      problem: error.said,
      ...(unreadableIn === undefined ? {} : { unreadableIn }),
      ...(whose(error) === "webhook" ? { conversionProblem: error.said } : {}),
    };
  }
}

/** The first answer that no conversion refuses. */
async function firstOf<T>(paths: readonly string[], look: (path: string) => Promise<T>): Promise<T> {
  const [path = "", ...others] = paths;
  try {
    return await look(path);
  } catch (error) {
    if (others.length === 0 || !isConversionRefusal(error)) throw error;
    return firstOf(others, look);
  }
}

async function countFieldVersions(
  pages: Pages,
  group: string,
  isAsked: (version: string) => boolean,
): Promise<FieldVersions> {
  const prefix = apiVersion({ group, version: "" });
  const versions = new Set<string>();
  let [objects, lookedAt] = [0, 0];
  let token: string | undefined;
  do {
    const page = await pages.list(token);
    for (const { metadata } of page.items) {
      const named = (metadata.managedFields ?? []).flatMap(({ apiVersion: of = "" }) => {
        const version = of.slice(prefix.length);
        return of.startsWith(prefix) && isAsked(version) ? [version] : [];
      });
      if (named.length > 0) objects++;
      for (const version of named) versions.add(version);
    }
    lookedAt += page.items.length;
    token = page.metadata.continue || undefined;
  } while (token !== undefined && lookedAt < MAX_LOOKED_AT);
  return { objects, versions: [...versions].toSorted(), lookedAt, isPartial: token !== undefined };
}

/**
 * Why the API server cannot call a conversion webhook. An object is stored in one version, so that reading it in all of
 * them takes the webhook. A list would not do: the watch cache has what was converted while the webhook was up.
 */
async function conversionProblem(
  client: Client,
  { group, plural, versions }: Listed,
  object: ObjectMeta,
  signal: AbortSignal,
): Promise<string | undefined> {
  for (const version of versions) {
    try {
      await client.get(objectPath({ group, plural, version }, object), { accept: METADATA, signal });
    } catch (error) {
      // The user may list objects, and not get them.
      if (!(error instanceof ApiError)) throw error;
      if (whose(error) === "webhook") return error.said;
    }
  }
  return undefined;
}

/** What the API server says of objects in a version that the CRD no longer has, in whatever answer. */
const UNREADABLE = /from an invalid group\/version: [^/\s]*\/([^\s,;"]+)/;

/** What a conversion webhook says is about objects that the API server can read. */
function lostVersion(said: string): string | undefined {
  return said.includes("conversion webhook for ") ? undefined : UNREADABLE.exec(said)?.[1];
}

const IN_FLIGHT = 8;

/** Does the same for each item, some at a time. @returns what came of each, in their order */
export async function forEach<T, R>(items: readonly T[], work: (item: T) => Promise<R>): Promise<readonly R[]> {
  const results: R[] = [];
  const queue = items.entries();
  const worker = async (): Promise<void> => {
    for (const [index, item] of queue) results[index] = await work(item);
  };
  await Promise.all(Array.from({ length: IN_FLIGHT }, worker));
  return results;
}
