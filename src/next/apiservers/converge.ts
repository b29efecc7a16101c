import { createHash } from "node:crypto";
import { KsvmError, messageOf } from "../../errors.ts";
import type { Client } from "../kube/client.ts";
import { ApiError } from "../kube/errors.ts";
import {
  type Crd,
  CRDS,
  epochOf,
  groupVersionPath,
  type KubeObject,
  METADATA_LIST,
  storageVersion,
} from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";
import { type Answers, type ApiServerOptions, ApiServerMissing, askEach } from "./find.ts";

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

/** One entry of the discovery document of a version. */
export interface DiscoveredResource {
  readonly name: string;
  readonly kind: string;
  readonly namespaced: boolean;
  readonly verbs: readonly string[];
  readonly storageVersionHash?: string;
}

/** What an answer may take, in milliseconds: reads wait for no webhook. */
const ANSWER_MS = 5_000;

/**
 * Finds every API server anew, and waits until each has observed these CRDs: its watch cache shows this generation of each,
 * and its discovery the storage version.
 *
 * @throws {ApiServerMissing} naming one that has not within `forMs`; {EpochChanged} where a CRD is another one by now
 */
export async function askAll(
  client: Client,
  options: ApiServerOptions,
  crds: readonly Crd[],
  { forMs, signal }: { readonly forMs: number; readonly signal: AbortSignal },
): Promise<Answers<void>> {
  const ask = async (apiServer: Client): Promise<void> => {
    for (const crd of crds) await converge(client, apiServer, crd, { forMs, signal });
  };
  return askEach(client, options, ask, signal);
}

async function converge(
  client: Client,
  apiServer: Client,
  crd: Crd,
  { forMs, signal }: { readonly forMs: number; readonly signal: AbortSignal },
): Promise<void> {
  const { clock } = client;
  const start = clock.monotonic();
  for (let pauseMs = 100; ; pauseMs = Math.min(pauseMs * 2, 2_000)) {
    const reason = await lag(apiServer, crd, signal).catch((error: unknown) => {
      if (error instanceof ApiError) return messageOf(error);
      throw error;
    });
    if (reason === undefined) return;
    await assertEpoch(client, crd, signal);
    if (clock.monotonic() - start > forMs) throw new ApiServerMissing(`${apiServer.address} is behind: ${reason}`);
    await clock.sleep(pauseMs, signal);
  }
}

/** Where the spec has changed meanwhile, no API server will ever show the one that is waited for. */
async function assertEpoch(client: Client, crd: Crd, signal: AbortSignal): Promise<void> {
  const { name } = crd.metadata;
  const now = await retry(client, () => client.findListed<KubeObject>(CRDS, name, { signal }), { signal });
  if (now === undefined) throw new EpochChanged(name, "the CRD was deleted");
  if (epochOf(now) !== epochOf(crd)) throw new EpochChanged(name, "the spec of the CRD changed");
}

/** Why an API server has not observed a CRD; `undefined` where it has. */
async function lag(apiServer: Client, crd: Crd, signal: AbortSignal): Promise<string | undefined> {
  // A list by name shows the watch cache, which the handlers follow. A GET is answered by etcd while the cache is not filled.
  const { name } = crd.metadata;
  const query = { fieldSelector: `metadata.name=${name}`, resourceVersion: 0 };
  const limits = { signal, timeoutMs: ANSWER_MS };
  const { items } = await apiServer.list<KubeObject>(CRDS, { query, accept: METADATA_LIST, ...limits });
  const cached = items.find(({ metadata }) => metadata.name === name);
  if (cached === undefined || epochOf(cached) !== epochOf(crd)) {
    return `its watch cache shows generation ${cached?.metadata.generation ?? "none"} of "${name}", not ${crd.metadata.generation}`;
  }
  const { group, names, versions } = crd.spec;
  const storage = storageVersion(crd);
  const isServed = versions.some((version) => version.served && version.name === storage);
  const version = isServed ? storage : versions.find(({ served }) => served)?.name;
  if (version === undefined) return undefined;
  const path = groupVersionPath({ group, version });
  const { resources } = await apiServer.get<{ resources: readonly DiscoveredResource[] | null }>(path, limits);
  const shown = resources?.find((resource) => resource.name === names.plural);
  if (shown === undefined) return `its discovery does not list "${names.plural}" in version "${version}"`;
  // k8s.io/apiextensions-apiserver v0.36.0, pkg/apiserver/customresource_discovery_controller.go
  const expected = isServed ? storageVersionHash(group, storage, names.kind) : "";
  const hash = shown.storageVersionHash ?? "";
  return hash === expected
    ? undefined
    : `its discovery shows storageVersionHash "${hash}" of "${name}", not "${expected}"`;
}

/**
 * What discovery shows for objects that are stored in a version.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/endpoints/discovery/storageversionhash.go
 */
export function storageVersionHash(group: string, version: string, kind: string): string {
  return createHash("sha256").update(`${group}/${version}/${kind}`).digest().subarray(0, 8).toString("base64");
}
