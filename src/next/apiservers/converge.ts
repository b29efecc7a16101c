import { messageOf } from "../../errors.ts";
import { EpochChanged, epochOf } from "../epoch.ts";
import type { Client } from "../kube/client.ts";
import { ApiError } from "../kube/errors.ts";
import { apiVersion, type Crd, CRDS, type KubeObject, METADATA_LIST, storageVersion } from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";
import { type DiscoveredResource, discover, storageVersionHash } from "./discovery.ts";
import { type Answers, type ApiServerOptions, ApiServerMissing, askEach } from "./find.ts";

/** What an answer may take, in milliseconds: reads wait for no webhook. */
const ANSWER_MS = 5_000;
/** The metadata of a thousand CRDs has tens of megabytes. */
const LONG_ANSWER_MS = 30_000;

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

/** Where the spec has changed meanwhile, no API server will ever show the one that is waited for. */
async function assertSame(client: Client, crd: Crd, signal: AbortSignal): Promise<void> {
  const { name } = crd.metadata;
  const now = await retry(client, () => client.findListed<KubeObject>(CRDS, name, { signal }), { signal });
  if (now === undefined) throw new EpochChanged(name, "the CRD was deleted");
  if (epochOf(now) !== epochOf(crd)) throw new EpochChanged(name, "the spec of the CRD changed");
}

async function lagOf(apiServer: Client, crds: readonly Crd[], signal: AbortSignal): Promise<Lag> {
  const [first] = crds;
  if (first === undefined) return { behind: [], reason: "" };
  // A list shows the watch cache, which the handlers follow. A GET is answered by etcd while the cache is not filled.
  const one = crds.length === 1 ? { fieldSelector: `metadata.name=${first.metadata.name}` } : {};
  const query = { ...one, resourceVersion: 0 };
  const timeoutMs = crds.length === 1 ? ANSWER_MS : LONG_ANSWER_MS;
  const { items } = await apiServer.list<KubeObject>(CRDS, { query, accept: METADATA_LIST, signal, timeoutMs });
  const cached = new Map(items.map((item) => [item.metadata.name, item]));
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
