import { createHash } from "node:crypto";
import { KsvmError, messageOf } from "../errors.ts";
import type { Client } from "../kube/client.ts";
import { ApiError, whose } from "../kube/errors.ts";
import {
  apiVersion,
  type Crd,
  CRDS,
  groupVersionPath,
  type KubeList,
  type KubeObject,
  METADATA_LIST,
  type Resource,
  storageVersion,
} from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";
import { type Answers, type ApiServerOptions, ApiServerMissing, askEach } from "./find.ts";

/** What an answer may take, in milliseconds: reads wait for no webhook. */
const ANSWER_MS = 5_000;
/** The metadata of a thousand CRDs has tens of megabytes. */
const LONG_ANSWER_MS = 30_000;
const MAX_BY_NAME = 20;

/** The CRDs that an API server has not observed, and what is wrong with the first one. */
interface Lag {
  readonly behind: readonly Crd[];
  readonly reason: string;
}

/**
 * Finds every API server anew, and waits until each has observed these CRDs: its watch cache shows this generation of
 * each, and its discovery the storage version.
 *
 * @throws {ApiServerMissing} naming one that has not within `forMs`; {EpochChanged} where a CRD is another one by now
 */
export async function convergeAll(
  client: Client,
  options: ApiServerOptions,
  crds: readonly Crd[],
  { forMs, signal }: { readonly forMs: number; readonly signal: AbortSignal },
): Promise<Answers<void>> {
  const { clock } = client;
  const ask = async (apiServer: Client, asking: AbortSignal): Promise<void> => {
    const start = clock.monotonic();
    let behind = crds;
    for (let pauseMs = 100; ; pauseMs = Math.min(pauseMs * 2, 2_000)) {
      const lag = await lagOf(apiServer, behind, asking).catch((error: unknown): Lag => {
        if (error instanceof ApiError) return { behind, reason: messageOf(error) };
        throw error;
      });
      behind = lag.behind;
      const [first] = behind;
      if (first === undefined) return;
      await assertSame(client, first, asking);
      if (clock.monotonic() - start > forMs) {
        throw new ApiServerMissing(`${apiServer.address} is behind: ${lag.reason}`);
      }
      await clock.sleep(pauseMs, asking);
    }
  };
  return askEach(client, options, ask, signal);
}

/** How long an API server may be behind before that is told. */
const TELL_MS = 60_000;

/**
 * Like {@link convergeAll}, and waits for API servers that are missing.
 * @param forMs milliseconds
 * @param onMissing told each time that one is
 * @throws {ApiServerMissing} after `forMs`; {EpochChanged}
 */
export async function untilConverged(
  client: Client,
  options: ApiServerOptions,
  crds: readonly Crd[],
  {
    forMs,
    onMissing,
    signal,
  }: { readonly forMs: number; readonly onMissing: (reason: string) => void; readonly signal: AbortSignal },
): Promise<void> {
  const end = client.clock.monotonic() + forMs;
  for (;;) {
    try {
      return void (await convergeAll(client, options, crds, { signal, forMs: TELL_MS }));
    } catch (error) {
      if (!(error instanceof ApiServerMissing) || client.clock.monotonic() >= end) throw error;
      onMissing(messageOf(error));
    }
    await client.clock.sleep(2_000, signal);
  }
}

/** Where the spec has changed meanwhile, no API server will ever show the one that is waited for. */
async function assertSame(client: Client, crd: Crd, signal: AbortSignal): Promise<void> {
  const { name } = crd.metadata;
  const now = await retry(client, () => client.findListed<KubeObject>(CRDS, name, { signal }), { signal });
  if (now === undefined) throw new EpochChanged(name, "the CRD was deleted");
  if (epochOf(now) !== epochOf(crd)) throw new EpochChanged(name, "the spec of the CRD changed");
}

async function lagOf(apiServer: Client, crds: readonly Crd[], signal: AbortSignal): Promise<Lag> {
  // A list shows the watch cache, which the handlers follow. A GET is answered by etcd while the cache is not filled.
  const list = (name?: string): Promise<KubeList<KubeObject>> => {
    const query = { resourceVersion: 0, ...(name === undefined ? {} : { fieldSelector: `metadata.name=${name}` }) };
    const timeoutMs = name === undefined ? LONG_ANSWER_MS : ANSWER_MS;
    return apiServer.list<KubeObject>(CRDS, { query, accept: METADATA_LIST, signal, timeoutMs });
  };
  const listed: KubeList<KubeObject>[] = [];
  // Few are asked for by name, which is all that the roles of `ksvm rbac` allow.
  if (crds.length > MAX_BY_NAME) listed.push(await list());
  else for (const { metadata } of crds) listed.push(await list(metadata.name));
  const cached = new Map(listed.flatMap(({ items }) => items).map((item) => [item.metadata.name, item]));
  const discovered = new Map<string, readonly DiscoveredResource[]>();
  const reasons = new Map<Crd, string>();
  for (const crd of crds) {
    const reason =
      cacheLag(crd, cached.get(crd.metadata.name)) ?? (await discoveryLag(apiServer, crd, discovered, signal));
    if (reason !== undefined) reasons.set(crd, reason);
  }
  return { behind: [...reasons.keys()], reason: [...reasons.values()][0] ?? "" };
}

/** Why a watch cache has not observed a CRD; `undefined` where it has. */
function cacheLag(crd: Crd, cached: KubeObject | undefined): string | undefined {
  if (cached !== undefined && epochOf(cached) === epochOf(crd)) return undefined;
  const { generation, name } = crd.metadata;
  return `its watch cache shows generation ${cached?.metadata.generation ?? "none"} of "${name}", not ${generation}`;
}

/**
 * Why discovery does not show the storage version of a CRD; `undefined` where it does.
 * @param known what this API server has answered already, by group and version
 */
async function discoveryLag(
  apiServer: Client,
  crd: Crd,
  known: Map<string, readonly DiscoveredResource[]>,
  signal: AbortSignal,
): Promise<string | undefined> {
  const { group, names, versions } = crd.spec;
  const storage = storageVersion(crd);
  const isServed = versions.some((version) => version.served && version.name === storage);
  const version = isServed ? storage : versions.find(({ served }) => served)?.name;
  if (version === undefined) return undefined;
  const key = apiVersion({ group, version });
  const resources = known.get(key) ?? (await discover(apiServer, { group, version }, { signal, timeoutMs: ANSWER_MS }));
  known.set(key, resources);
  const shown = resources.find((resource) => resource.name === names.plural);
  if (shown === undefined) return `its discovery does not list "${names.plural}" in version "${version}"`;
  // k8s.io/apiextensions-apiserver v0.36.0, pkg/apiserver/customresource_discovery_controller.go
  const expected = isServed ? storageVersionHash(group, storage, names.kind) : "";
  const hash = shown.storageVersionHash ?? "";
  if (hash === expected) return undefined;
  return `its discovery shows storageVersionHash "${hash}" of "${crd.metadata.name}", not "${expected}"`;
}

/** One entry of the discovery document of a version. */
export interface DiscoveredResource {
  readonly name: string;
  readonly kind: string;
  readonly singularName?: string;
  readonly shortNames?: readonly string[] | null;
  readonly namespaced: boolean;
  readonly verbs: readonly string[];
  readonly storageVersionHash?: string;
}

/** What one API server serves in a version, subresources included; nothing where it does not serve the version. */
export async function discover(
  apiServer: Client,
  version: Pick<Resource, "group" | "version">,
  limits: { readonly signal: AbortSignal; readonly timeoutMs?: number },
): Promise<readonly DiscoveredResource[]> {
  const path = groupVersionPath(version);
  try {
    const list = await apiServer.get<{ resources: readonly DiscoveredResource[] | null }>(path, limits);
    return list.resources ?? [];
  } catch (error) {
    if (whose(error) === "gone") return [];
    throw error;
  }
}

/**
 * What discovery shows for objects that are stored in a version.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/endpoints/discovery/storageversionhash.go
 */
export function storageVersionHash(group: string, version: string, kind: string): string {
  return createHash("sha256").update(`${group}/${version}/${kind}`).digest().subarray(0, 8).toString("base64");
}

/** `uid/generation`: another spec has another one, whatever it says, and so has another CRD of the same name. */
export function epochOf({ metadata }: Pick<KubeObject, "metadata">): string {
  return `${metadata.uid}/${metadata.generation ?? 0}`;
}

/** What an attempt rests on has changed. Nothing was pruned; another attempt begins at step 1. */
export class EpochChanged extends KsvmError {
  override readonly name = "EpochChanged";
  /** Of the CRD or the built-in resource. */
  readonly resource: string;

  constructor(resource: string, what: string) {
    super("StorageVersionChanged", `Cannot continue with "${resource}": ${what}; nothing was pruned`);
    this.resource = resource;
  }
}
