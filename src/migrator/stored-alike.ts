import type { CustomResourceDefinition } from "../api/crd.ts";
import type { ApiServers } from "../apiservers/api-servers.ts";
import { pauseAdvice } from "../apiservers/settle.ts";
import { closeWriters, writersThrough } from "../apiservers/writers-through.ts";
import type { ApiClient } from "../kube/client.ts";
import type { ListedObject } from "../kube/listed-object.ts";
import type { Fence } from "../kube/transport-options.ts";
import { Patience } from "../retry/patience.ts";
import { StartAgain } from "../retry/start-again.ts";
import { listInAnyVersion } from "./rewrite/list-in-any-version.ts";
import { rewriteObject } from "./rewrite/rewrite.ts";
import type { ObjectOutcome, RewriteContext } from "./rewrite/rewrite-context.ts";
import { probedResourceOf } from "./rewrite/stuck-probe.ts";
import type { RunContext } from "./run-context.ts";

/** So many objects are written once more: those that the pass began with, since what lagged then may have followed by now. */
const OBJECTS = 2;
/** Through so many new connections each, where the API servers share one address: a write cannot be sent to a certain one of them. */
const CONNECTIONS = 4;
/** Whoever wrote it last, it is written again. */
const NO_WATERMARK = "";

/** What a run has rewritten, and through whom it may write. */
export interface Rewritten {
  readonly crd: CustomResourceDefinition;
  readonly apiServers: ApiServers;
}

/** What {@link assertStoredAlike} takes. */
export interface StoredAlikeOptions extends Rewritten, Pick<RewriteContext, "objectsSeen"> {
  /** Of the writes. */
  readonly fence: Fence;
}

/**
 * Writes the first objects of a CRD as they are, through every API server. An API server may show the storage version in discovery, have followed the
 * CRD in its watch cache, and still store objects in the old one, since what stores them follows by itself
 * (https://github.com/kubernetes/kubernetes/issues/130235). Where it stores an object otherwise than the one that wrote it before, the
 * resourceVersion of the object moves, and does not move again. Two encryption keys look the same.
 *
 * What cannot be told is passed over: an object that another client deletes or admission refuses, and one that every write stores anew.
 * @throws {StartAgain} where one of them does.
 * @throws what `rewriteObject()` and the fence throw.
 */
export async function assertStoredAlike(context: RunContext, options: StoredAlikeOptions): Promise<void> {
  const { options: settings, seen } = context;
  const server = await serverThatStoresOtherwise(context, options);
  if (server === undefined) {
    return;
  }
  const { name } = options.crd.metadata;
  seen?.noting(name).onLag();
  const text =
    `Cannot prune storedVersions of "${name}": ${server} stores an object otherwise than the API server that stored it before, in another ` +
    `version or with another encryption key; once all of them agree, ${pauseAdvice(settings.settleMs)}`;
  throw new StartAgain("NotConverged", text);
}

async function serverThatStoresOtherwise(
  context: RunContext,
  { apiServers, crd, fence, objectsSeen }: StoredAlikeOptions,
): Promise<string | undefined> {
  const { client, retrier, signal } = context;
  const resource = probedResourceOf(crd);
  const { items } = await retrier.run(() => listInAnyVersion(client, resource, { limit: OBJECTS, signal }), signal);
  const writers = items.length === 0 ? [] : writersOf(client, apiServers, fence);
  try {
    for (const object of items) {
      const server = await differing(context, { ...resource, objectsSeen, scope: crd.spec.scope }, writers, object);
      if (server !== undefined) {
        return server;
      }
    }
    return undefined;
  } finally {
    await closeWriters(client, writers);
  }
}

function writersOf(client: ApiClient, apiServers: ApiServers, fence: Fence): readonly ApiClient[] {
  return apiServers.mode === "each"
    ? [client, ...writersThrough(client, apiServers.clients, fence).filter((writer) => writer !== client)]
    : Array.from({ length: CONNECTIONS }, () => apiServers.open().fencedBy(fence));
}

async function differing(
  context: RunContext,
  { kind, objectsSeen, resource, scope }: Pick<RewriteContext, "kind" | "objectsSeen" | "resource" | "scope">,
  writers: readonly ApiClient[],
  object: ListedObject,
): Promise<string | undefined> {
  const { clock, options, pacer, retrier, signal } = context;
  const patience = new Patience();
  const write = async ({ transport }: ApiClient): Promise<ObjectOutcome> => {
    await pacer.slot(signal);
    const { subresource } = options;
    const of = { clock, kind, objectsSeen, pacer, patience, resource, retrier, scope, subresource, transport };
    return rewriteObject({ ...of, dryRun: false, signal, waitSignal: signal, watermark: NO_WATERMARK }, object);
  };
  for (const writer of writers) {
    const outcome = await write(writer);
    if (outcome.kind === "migrated" && !outcome.changed && (await write(writer)).kind === "current") {
      return writer.transport.server;
    }
    if (outcome.kind !== "current") {
      return undefined;
    }
  }
  return undefined;
}
