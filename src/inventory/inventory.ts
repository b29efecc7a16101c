import { withoutUndefined } from "../api/json-fields.ts";
import type { Client } from "../kube/client.ts";
import { ApiError, whose } from "../kube/errors.ts";
import {
  collectionPath,
  type Crd,
  CRDS,
  hasConversionWebhook,
  type KubeList,
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
 * What a cluster holds. CRDs and objects are read page by page, and nothing is kept but what a view shows, so
 * that a thousand CRDs and a million objects take no more memory than a few.
 */

/** The CRD of this name as it is now; `undefined` where there is none. A name without a dot is never a CRD's. */
export async function findCrd(client: Client, name: string, signal: AbortSignal): Promise<Crd | undefined> {
  if (!name.includes(".")) return undefined;
  return ask(client, () => client.find<Crd>(`${CRDS}/${encodeURIComponent(name)}`, { signal }), signal);
}

/**
 * Every item of a collection, page by page. Where a list has to begin again, some come twice.
 * @param accept `METADATA_LIST` for their metadata alone
 * @throws {ApiError}
 */
export async function* everyItem<T extends KubeObject = KubeObject>(
  client: Client,
  path: string,
  signal: AbortSignal,
  accept = "application/json",
): AsyncGenerator<T, void> {
  for await (const { items } of everyPage(client, [path], signal, accept)) yield* items as readonly T[];
}

async function* everyPage(
  client: Client,
  paths: readonly string[],
  signal: AbortSignal,
  accept: string,
): AsyncGenerator<KubeList<KubeObject>, void> {
  const pages = new Pages(client, paths, signal, accept, 0);
  let token: string | undefined;
  do {
    const page = await ask(client, () => pages.list(token), signal);
    yield page;
    token = page.metadata.continue || undefined;
  } while (token !== undefined);
}

/** Reads for a user who waits. Only failures of the API server are tried again: a missing right is an answer. */
export async function ask<T>(client: Client, read: () => Promise<T>, signal: AbortSignal): Promise<T> {
  const answer = await retry(client, () => read().then((value) => ({ value }), unlessOfApiServer), { signal });
  if ("error" in answer) throw answer.error;
  return answer.value;
}

function unlessOfApiServer(error: unknown): { readonly error: unknown } {
  if (whose(error) === "apiServer") throw error;
  return { error };
}

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
  /** Whether only the first objects were asked for that. */
  readonly isPartial?: boolean;
}

/** Where the objects of a resource are listed. */
export interface Listed {
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

/** So many objects are looked at, one page in memory at a time. */
const MAX_LOOKED_AT = 10_000;
/** No object has this label. To answer with none, the API server has to decode every object, or did for its cache. */
const NO_OBJECT = "ksvm.sigs.k8s.io/no-object";
/** What the API server says of objects in a version that the CRD no longer has, in whatever answer. */
const UNREADABLE = /from an invalid group\/version: [^/\s]*\/([^\s,;"]+)/;

/**
 * Counts the objects of a resource. Where managedFields are asked about, the API server also decodes every object.
 *
 * @param isAsked about which versions in managedFields. @default none, which costs one short list
 * @param most looks at the managedFields of so many objects
 * @param accept `application/json` where it has to see whole objects
 * @returns nothing where no version is served
 * @throws the signal's reason. What the API server says otherwise is in the result.
 */
export async function lookAtObjects(
  client: Client,
  listed: Listed,
  signal: AbortSignal,
  isAsked?: (version: string, object: KubeObject) => boolean,
  most = MAX_LOOKED_AT,
  accept = METADATA_LIST,
): Promise<FoundObjects> {
  const paths = listed.versions.map((version) => collectionPath({ ...listed, version }));
  const [path] = paths;
  if (path === undefined) return {};
  const prefix = `${listed.group}/`;
  const versions = new Set<string>();
  let [objects, lookedAt, isPartial] = [0, 0, false];
  let [count, first]: [count?: number, first?: ObjectMeta] = [];
  try {
    for await (const { items, metadata } of everyPage(client, paths, signal, accept)) {
      count ??= items.length + (metadata.remainingItemCount ?? 0);
      first ??= items[0]?.metadata;
      if (isAsked === undefined) break;
      for (const object of items) {
        const named = (object.metadata.managedFields ?? [])
          .flatMap(({ apiVersion = "" }) => (apiVersion.startsWith(prefix) ? apiVersion.slice(prefix.length) : []))
          .filter((version) => isAsked(version, object));
        if (named.length > 0) objects++;
        for (const version of named) versions.add(version);
      }
      lookedAt += items.length;
      isPartial = Boolean(metadata.continue);
      if (lookedAt >= most) break;
    }
    if (isPartial) {
      const query = { labelSelector: NO_OBJECT, limit: 1 };
      await ask(client, () => client.list(path, { query, accept: METADATA_LIST, signal }), signal);
    }
    let conversionProblem: string | undefined;
    // An object is stored in one version, so that reading it in all of them takes the webhook. A list would not do: the
    // watch cache has what was converted while the webhook was up.
    for (const version of listed.hasWebhook === true ? listed.versions : []) {
      const read = first && client.get(objectPath({ ...listed, version }, first), { accept: METADATA, signal });
      // The user may list objects, and not get them.
      await read?.catch((error: unknown) => void (conversionProblem ??= isDown(error) ? error.said : undefined));
    }
    const named = { objects, versions: [...versions].toSorted(), lookedAt, isPartial };
    const fieldVersions = objects === 0 ? undefined : named;
    return withoutUndefined<FoundObjects>({ count, conversionProblem, fieldVersions, isPartial });
  } catch (error) {
    signal.throwIfAborted();
    if (!(error instanceof ApiError)) throw error;
    const { said: problem } = error;
    // What a conversion webhook says is about objects that the API server can read.
    const unreadableIn = problem.includes("conversion webhook for ") ? undefined : UNREADABLE.exec(problem)?.[1];
    const conversionProblem = isDown(error) ? problem : undefined;
    return withoutUndefined<FoundObjects>({ problem, unreadableIn, conversionProblem });
  }
}

function isDown(error: unknown): error is ApiError {
  return whose(error) === "webhook";
}
