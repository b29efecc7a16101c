import { type CustomResourceDefinition, requestVersionOf, storageVersionOf } from "../api/crd.ts";
import { KsvmError, messageOf } from "../errors.ts";
import type { CallOptions } from "../old/kube/call-options.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { ApiError } from "../old/kube/errors.ts";
import { collectionPath, type Resource } from "../old/kube/resources.ts";
import { TokenTrail } from "../old/kube/token-trail.ts";
import type { CallContext } from "../old/retry/call-context.ts";
import type { ListedObjects } from "./check-types.ts";
import { countObjects } from "./inventory.ts";

/** What the API server says of objects in a version that the CRD no longer has, in whatever answer. */
const UNREADABLE = /from an invalid group\/version: [^/\s]*\/([^\s,;"]+)/;
/**
 * What follows are the words of a webhook of another client, which the API server asks for objects that it can read.
 */
const CONVERSION = "conversion webhook for ";
/** No object has it: the answer is empty, and the API server decodes every object for it, or has for its cache. */
const NO_OBJECT = "ksvm.sigs.k8s.io/no-object";
const PROBE_PAGE = 500;
/** What Kubernetes 1.31 and 1.32 answer while an object keeps the cache from being filled; later versions add why. */
const CACHE_IS_EMPTY = /storage is \(re\)initializing\s*$/;

/**
 * Counts the objects of a CRD and has the API server decode them all; `undefined` where the CRD serves no version.
 * @throws the signal's reason where it is aborted. What the API server says otherwise is in the result.
 */
export async function listedObjects(
  { client, retrier, signal }: CallContext,
  live: CustomResourceDefinition,
): Promise<ListedObjects | undefined> {
  const { group, names } = live.spec;
  const version = requestVersionOf(live);
  if (version === undefined) {
    return undefined;
  }
  const resource = { group, version, resource: names.plural };
  let count: number | undefined;
  try {
    const read = async (): Promise<void> => {
      count = await countObjects(client, resource, { signal });
      await probe(client, resource, { signal });
    };
    await retrier.run(() => unlessUnreadable(read), signal);
    return count === undefined ? {} : { count };
  } catch (error) {
    signal.throwIfAborted();
    if (!(error instanceof KsvmError)) {
      throw error;
    }
    const said = textOf(error);
    const unreadableIn = lostVersionIn(said);
    return {
      ...(count === undefined ? {} : { count }),
      problem: said,
      ...(unreadableIn === undefined ? {} : { unreadableIn }),
    };
  }
}

/**
 * What keeps a CRD that serves no version from having its objects listed, and what to do; `undefined` for any other.
 */
export function unservedTextOf(live: CustomResourceDefinition): string | undefined {
  return requestVersionOf(live) === undefined
    ? `the CRD serves no version; set served: true for ${storageVersionOf(live)} in its spec.versions`
    : undefined;
}

/** The count is of one object; this is of all of them. */
async function probe(client: ApiClient, resource: Resource, options: CallOptions): Promise<void> {
  try {
    await client.listMetadata(resource, { labelSelector: NO_OBJECT, limit: PROBE_PAGE, ...options });
  } catch (error) {
    if (!(error instanceof ApiError) || !CACHE_IS_EMPTY.test(error.said)) {
      throw error;
    }
    await readAll(client, resource, options);
  }
}

/** Pages without a selector come from etcd where there is no cache, and fail with the object that cannot be read. */
async function readAll(client: ApiClient, resource: Resource, options: CallOptions): Promise<void> {
  const trail = new TokenTrail(collectionPath(resource));
  let continueToken: string | undefined;
  do {
    const page = await client.listMetadata(resource, { limit: PROBE_PAGE, continueToken, ...options });
    continueToken = trail.next(page.metadata.continue);
  } while (continueToken !== undefined);
}

/**
 * While its cache cannot be filled the API server answers 429, which is no use to wait for where objects are the cause.
 */
class Unreadable extends KsvmError {
  constructor(said: string, cause: unknown) {
    super("ApiRequestFailed", said, { cause });
  }
}

async function unlessUnreadable(read: () => Promise<void>): Promise<void> {
  try {
    await read();
  } catch (error) {
    const said = textOf(error);
    throw lostVersionIn(said) !== undefined ? new Unreadable(said, error) : error;
  }
}

function lostVersionIn(said: string): string | undefined {
  return said.includes(CONVERSION) ? undefined : UNREADABLE.exec(said)?.[1];
}

function textOf(error: unknown): string {
  return error instanceof ApiError ? error.said : messageOf(error);
}
