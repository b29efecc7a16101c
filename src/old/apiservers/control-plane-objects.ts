import { holderOf, type Lease } from "../../api/lease.ts";
import type { ObjectMeta } from "../../api/meta.ts";
import type { Clock } from "../../clock.ts";
import type { ApiClient } from "../kube/client.ts";
import { DoubtfulAnswer } from "../kube/errors.ts";
import { allItemsOf, type ListAnswer } from "../kube/listed-items.ts";
import { unlessForbidden } from "../kube/unless-forbidden.ts";

/** The Lease by which an API server says that it lives, where it may live. */
export interface LiveLease {
  readonly name: string;
  /** Empty where it cannot be told. */
  readonly uid: string;
  /** When the API server joined, in milliseconds since the Unix epoch; NaN where it cannot be told. */
  readonly createdAt: number;
  /** The host name of the API server, where the Lease tells it. */
  readonly host?: string;
  /** When it was last renewed, as the API server wrote it. */
  readonly renewTime?: string;
  /** How long that is ago by the clock of the API server that was asked, in milliseconds. */
  readonly renewedMsAgo: number;
  /** How long ago it was renewed at the least, by what this process saw, in milliseconds. @default it saw no renewal */
  readonly seenRenewedMsAgo?: number;
  /**
   * Where its time is over: how many milliseconds longer it must be watched and stand still before it counts as expired.
   * @default 0: it lives
   */
  readonly watchMs?: number;
}

/** An identity Lease that there is. Whether its API server may live, `LeaseSightings` says. */
export interface IdentityLease extends LiveLease {
  /** Whether its time is over, by the clock of the API server that was asked and by that of this machine. */
  readonly isOver: boolean;
  /** How long a renewal counts, in milliseconds. */
  readonly durationMs: number;
  /** The process that holds it; empty where the Lease does not tell. */
  readonly holder: string;
}

/** No more of the metadata is certain than what a Lease is listed by. */
interface ListedLease extends Pick<Lease, "spec"> {
  readonly metadata: Pick<ObjectMeta, "name"> & Partial<ObjectMeta>;
}

interface EndpointSlice {
  readonly endpoints?: readonly {
    readonly addresses: readonly string[];
    readonly conditions?: { readonly ready?: boolean };
  }[];
  readonly ports?: readonly { readonly name?: string; readonly port?: number }[];
}

/** The namespace of these Leases. */
export const IDENTITY_NAMESPACE = "kube-system";
const LEASES_PATH = `/apis/coordination.k8s.io/v1/namespaces/${IDENTITY_NAMESPACE}/leases`;
/** The label of these Leases (feature gate APIServerIdentity, on by default since Kubernetes 1.26). */
export const IDENTITY_SELECTOR = "apiserver.kubernetes.io/identity=kube-apiserver";
const HOST_LABEL = "kubernetes.io/hostname";
const SLICES_PATH = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const DEFAULT_LEASE_SECONDS = 3_600;

/**
 * All identity Leases; `undefined` where the user may not read them.
 * @throws {ApiError | TransportError}; {DoubtfulAnswer} where the answer is no list.
 */
export async function identityLeases(
  client: ApiClient,
  clock: Clock,
  signal: AbortSignal,
): Promise<readonly IdentityLease[] | undefined> {
  return (await unlessForbidden(() => readLeases(client, clock, signal)))?.leases;
}

/** All identity Leases, and the resourceVersion from which a watch tells of what follows. */
export interface IdentityLeaseList {
  readonly leases: readonly IdentityLease[];
  readonly resourceVersion: string;
}

/**
 * The same, for a watch to go on from.
 * @throws {ApiError | TransportError}; {DoubtfulAnswer} where the answer is no list, or has no resourceVersion.
 */
export async function listIdentityLeases(
  client: ApiClient,
  clock: Clock,
  signal: AbortSignal,
): Promise<IdentityLeaseList> {
  const { leases, resourceVersion = "" } = await readLeases(client, clock, signal);
  if (resourceVersion === "") {
    throw new DoubtfulAnswer(`Cannot list ${LEASES_PATH}: the answer has no resourceVersion`);
  }
  return { leases, resourceVersion };
}

/** The same; a proxy may leave the resourceVersion out. @throws {ApiError | TransportError}; {DoubtfulAnswer} where the answer is no list. */
export async function readLeases(
  { transport }: ApiClient,
  clock: Clock,
  signal: AbortSignal,
): Promise<Pick<IdentityLeaseList, "leases"> & Partial<IdentityLeaseList>> {
  const query = { labelSelector: IDENTITY_SELECTOR };
  const request = { method: "GET", path: LEASES_PATH, query, signal } as const;
  const { body, serverTime } = await transport.request<ListAnswer<ListedLease>>(request);
  const clocks = { serverNow: serverTime ?? clock.now(), localNow: clock.now() };
  const leases = allItemsOf(body, LEASES_PATH).map((lease) => identityLeaseOf(lease, clocks));
  const { resourceVersion } = body?.metadata ?? {};
  return { leases, ...(resourceVersion === undefined ? {} : { resourceVersion }) };
}

function identityLeaseOf(
  { metadata, spec = {} }: ListedLease,
  { localNow, serverNow }: { readonly serverNow: number; readonly localNow: number },
): IdentityLease {
  const { name, uid = "", creationTimestamp = "", labels } = metadata;
  const host = labels?.[HOST_LABEL];
  const { leaseDurationSeconds = DEFAULT_LEASE_SECONDS, renewTime } = spec;
  const renewedAt = Date.parse(renewTime ?? "");
  const durationMs = leaseDurationSeconds * 1_000;
  return {
    name,
    uid,
    createdAt: Date.parse(creationTimestamp),
    renewedMsAgo: serverNow - renewedAt,
    durationMs,
    holder: holderOf({ spec }),
    isOver: Number.isNaN(renewedAt) || renewedAt + durationMs <= Math.min(serverNow, localNow),
    ...(host === undefined ? {} : { host }),
    ...(renewTime === undefined ? {} : { renewTime }),
  };
}

/**
 * The URLs of the API servers by the EndpointSlices of the service `kubernetes`; none where the user may not read them.
 * @throws {ApiError | TransportError}; {DoubtfulAnswer} where the answer is no list.
 */
export async function endpointUrls(client: ApiClient, signal: AbortSignal): Promise<readonly string[]> {
  const query = { labelSelector: "kubernetes.io/service-name=kubernetes" };
  const answer = await unlessForbidden(() =>
    client.transport.request<ListAnswer<EndpointSlice>>({ method: "GET", path: SLICES_PATH, query, signal }),
  );
  const slices = answer === undefined ? [] : allItemsOf(answer.body, SLICES_PATH);
  return [...new Set(slices.flatMap(urlsOf))];
}

/** The URLs of the ready endpoints of one slice. */
export function urlsOf({ endpoints, ports }: EndpointSlice): readonly string[] {
  const port = (ports ?? []).find(({ name }) => name === "https")?.port ?? 443;
  return (endpoints ?? [])
    .filter(({ conditions }) => conditions?.ready !== false)
    .flatMap(({ addresses }) => addresses)
    .map((address) => `https://${address.includes(":") ? `[${address}]` : address}:${port}`);
}
