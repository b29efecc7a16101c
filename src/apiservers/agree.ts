import type { Client } from "../kube/client.ts";
import { unlessForbidden, whose } from "../kube/errors.ts";
import { type KubeList, type KubeObject, type Resource, resourceName } from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";
import { type DiscoveredResource, discover, storageVersionHash } from "./converge.ts";
import { type Answers, type ApiServerOptions, askEach, identityLeases } from "./find.ts";

/** A resource that every API server stores in the same way. */
export interface AgreedResource extends Resource {
  readonly kind: string;
  readonly verbs: readonly string[];
  /** Empty where discovery shows none. */
  readonly hash: string;
}

/** How all API servers store resources, which do not change while the processes are the same. */
export interface Agreement {
  /** By `plural.group`. */
  readonly agreed: ReadonlyMap<string, AgreedResource>;
  /** Why API servers do not store a resource in the same way, by `plural.group`. */
  readonly disagreements: ReadonlyMap<string, string>;
  readonly answers: Answers<ReadonlyMap<string, AgreedResource>>;
}

/**
 * Asks every API server how it stores the resources of these versions. They agree on a resource where all of them show
 * one and the same storageVersionHash, and where the StorageVersion API is served, where its encoding versions say the
 * same.
 *
 * @throws {ApiServerMissing} where one cannot be asked; {ApiError}
 */
export async function agreement(
  client: Client,
  options: ApiServerOptions,
  versions: readonly Pick<Resource, "group" | "version">[],
  signal: AbortSignal,
): Promise<Agreement> {
  const ask = async (apiServer: Client, asking: AbortSignal): Promise<ReadonlyMap<string, AgreedResource>> => {
    const shown = new Map<string, AgreedResource>();
    for (const version of versions) {
      for (const resource of await discovered(apiServer, version, asking)) {
        const name = resourceName(resource);
        if (!shown.has(name)) shown.set(name, resource);
      }
    }
    return shown;
  };
  const answers = await askEach(client, options, ask, signal);
  const encodings = await encodingVersions(client, options, signal);
  const agreed = new Map<string, AgreedResource>();
  const disagreements = new Map<string, string>();
  const [first, ...others] = answers.answers;
  for (const [name, resource] of first?.answer ?? []) {
    const other = others.find(({ answer }) => answer.get(name)?.hash !== resource.hash);
    const reason =
      other === undefined
        ? encodings(resource)
        : `${first?.address} shows storageVersionHash "${resource.hash}", and ` +
          `${other.address} "${other.answer.get(name)?.hash ?? ""}"`;
    if (reason === undefined) agreed.set(name, resource);
    else disagreements.set(name, reason);
  }
  for (const { address, answer } of others) {
    for (const name of answer.keys()) {
      if (first?.answer.has(name) !== true)
        disagreements.set(name, `${address} serves it, and ${first?.address} does not`);
    }
  }
  return { agreed, disagreements, answers };
}

/** The resources of a version, without subresources; none where the version is not served. */
async function discovered(
  apiServer: Client,
  { group, version }: Pick<Resource, "group" | "version">,
  signal: AbortSignal,
): Promise<readonly AgreedResource[]> {
  const read = (): Promise<readonly DiscoveredResource[]> => discover(apiServer, { group, version }, { signal });
  const listed = await retry(apiServer, read, { signal, forMs: 5_000 });
  return listed
    .filter(({ name }) => !name.includes("/"))
    .map(({ kind, name, storageVersionHash: hash = "", verbs }) => ({
      group,
      version,
      plural: name,
      kind,
      verbs,
      hash,
    }));
}

/**
 * A StorageVersion as Kubernetes built it. The agreedEncodingVersion of the proposal is commonEncodingVersion.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/api/apiserverinternal/v1alpha1/types.go
 */
export interface StorageVersion extends KubeObject {
  readonly status?: {
    readonly commonEncodingVersion?: string;
    readonly storageVersions?: readonly { readonly apiServerID: string; readonly encodingVersion: string }[] | null;
    readonly conditions?: readonly { readonly type: string; readonly status: string }[] | null;
  };
}

/**
 * Reads the StorageVersion API, which is alpha and rarely served.
 * @returns why the API servers do not encode a resource in the same version by it; `undefined` where they do, or where
 * it says nothing
 */
async function encodingVersions(
  client: Client,
  options: ApiServerOptions,
  signal: AbortSignal,
): Promise<(resource: AgreedResource) => string | undefined> {
  const path = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
  const list = (): Promise<KubeList<StorageVersion> | undefined> =>
    unlessForbidden(client.list<StorageVersion>(path, { signal })).catch((error: unknown) => {
      if (whose(error) === "gone") return undefined;
      throw error;
    });
  const listed = await retry(client, list, { signal });
  if (listed === undefined || listed.items.length === 0) return () => undefined;
  // Where a user names the API servers, no right to list Leases is asked for.
  const leases = options.endpoints === undefined ? await identityLeases(client, options, signal) : undefined;
  const identities = leases?.map(({ metadata }) => metadata.name);
  const byName = new Map(listed.items.map((one) => [one.metadata.name, one]));
  return ({ group, hash, kind, plural }) => {
    const { status } = byName.get(`${group || "core"}.${plural}`) ?? {};
    if (status === undefined) return undefined;
    // An API server that is gone keeps its entry while its identity Lease lives.
    const entries = (status.storageVersions ?? []).filter(({ apiServerID }) => !options.ignored?.includes(apiServerID));
    const silent = (identities ?? []).filter((name) => !entries.some(({ apiServerID }) => apiServerID === name));
    if (silent.length > 0) return `its StorageVersion has no entry of ${silent.join(", ")}`;
    const dead = entries.find(({ apiServerID }) => identities?.includes(apiServerID) === false);
    if (dead !== undefined)
      return `its StorageVersion has an entry of ${dead.apiServerID}, which has no identity Lease`;
    const [encoding, ...differing] = new Set(entries.map(({ encodingVersion }) => encodingVersion));
    if (encoding === undefined || differing.length > 0) return "its StorageVersion has no common encoding version";
    const slash = encoding.lastIndexOf("/");
    const encoded = storageVersionHash(encoding.slice(0, Math.max(0, slash)), encoding.slice(slash + 1), kind);
    return hash === "" || encoded === hash
      ? undefined
      : `its StorageVersion says "${encoding}", and discovery shows storageVersionHash "${hash}"`;
  };
}
