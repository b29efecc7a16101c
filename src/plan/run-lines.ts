import { type CustomResourceDefinition, requestVersionOf } from "../api/crd.ts";
import { selectorOfName } from "../old/kube/field-selector.ts";
import { holderOf, type Lease } from "../api/lease.ts";
import { CONTROLLER_LEASE, SYSTEM_NAMESPACE } from "../api/migration.ts";
import { MANAGED_BY, MANAGED_BY_LABEL } from "../api/names.ts";
import { systemClock } from "../clock.ts";
import type { CallOptions } from "../old/kube/call-options.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { ApiError } from "../old/kube/errors.ts";
import { allItemsOf, type ListAnswer } from "../old/kube/listed-items.ts";
import { listNamed } from "../old/kube/list-named.ts";
import { collectionPath, CRDS, LEASES } from "../old/kube/resources.ts";
import { unlessForbidden } from "../old/kube/unless-forbidden.ts";
import { leaseNameOf, observedMsOf, resourceOfLease } from "../old/lease/lease-acquire.ts";
import { CHECKPOINT_ANNOTATION } from "../old/lease/run-lease.ts";
import { DEFAULT_LEASE_NAMESPACE } from "../old/lease/run-lease-ref.ts";
import { shownProgressOf } from "../old/migrator/rewrite/checkpoint.ts";
import { countObjects } from "./inventory.ts";

/**
 * What a Lease says of its holder.
 *
 * - `alive`: it was renewed within its duration
 * - `silent`: it was not, so that its holder was killed, cannot reach the API server, or ended while late writes may come
 * - `released`: it has no holder
 * - `unknown`: it was renewed in the future, by the clock of the API server that answered
 */
export type Sign = "alive" | "silent" | "released" | "unknown";

/** A Lease and its holder. Field names are those of `ksvm status -o json`. */
export interface LeaseLine {
  readonly state: Sign;
  /** `namespace/name`. */
  readonly lease: string;
  readonly holder?: string;
  /** The last sign of life, RFC 3339, by the clock of an API server where it is known. */
  readonly renewed?: string;
}

/** A run of `ksvm migrate`, `reencrypt` or `doctor` without a migration object. */
export interface RunLine extends LeaseLine {
  readonly resource: string;
  /** How many objects its checkpoint covers: at most as many as it has looked at. Missing before its first page. */
  readonly checkpoint?: number;
  /** How many there are, missing where that cannot be read. */
  readonly objects?: number;
}

/** Whether a controller leads: its Lease, or why there is none to show. */
export type ControllerLine =
  | LeaseLine
  /** `namespace` is the only one that this user may look into. */
  | { readonly state: "none"; readonly namespace?: string }
  | { readonly state: "unknown"; readonly reason: string };

/** Told what cannot be known, and why. */
export type OnUnknown = (what: string) => void;

interface FoundLeases {
  readonly leases: readonly Lease[];
  /** Milliseconds since the Unix epoch, by the clock of the API server that answered. */
  readonly now: number;
  /** Where this user may not list them; missing where it may in all namespaces. */
  readonly unread?: readonly string[];
}

/**
 * Whether a controller leads: by its Lease where it is installed, else in whichever namespace it is.
 * @throws {ApiError | TransportError}
 */
export async function readControllerLine(client: ApiClient, options: CallOptions = {}): Promise<ControllerLine> {
  const query = { fieldSelector: selectorOfName(CONTROLLER_LEASE) };
  const { leases, now, unread } = await findLeases(client, { query, namespaces: [SYSTEM_NAMESPACE] }, options);
  const lines = leases.map((lease) => leaseLineOf(lease, now));
  // Users may write Leases in namespaces of their own.
  const installed = lines.find(({ lease }) => lease === `${SYSTEM_NAMESPACE}/${CONTROLLER_LEASE}`);
  const line = installed ?? lines.find(({ state }) => state === "alive") ?? lines[0];
  if (line !== undefined || unread === undefined) {
    return line ?? { state: "none" };
  }
  return unread.length > 0
    ? { state: "unknown", reason: `this user may not list Leases in namespace ${SYSTEM_NAMESPACE}` }
    : { state: "none", namespace: SYSTEM_NAMESPACE };
}

/**
 * The runs that hold a Lease, and those that left a checkpoint there. A controller's migrations hold none.
 * @throws {ApiError | TransportError}
 */
export async function readRunLines(
  client: ApiClient,
  onUnknown: OnUnknown,
  options: CallOptions = {},
): Promise<readonly RunLine[]> {
  const query = { labelSelector: `${MANAGED_BY_LABEL}=${MANAGED_BY}` };
  const namespaces = [DEFAULT_LEASE_NAMESPACE, SYSTEM_NAMESPACE];
  const { leases, now, unread } = await findLeases(client, { query, namespaces }, options);
  if (unread !== undefined) {
    const where = unread.length === 0 ? `namespaces other than ${namespaces.join(" and ")}` : unread.join(", ");
    onUnknown(`runs without a migration object: this user may not list Leases in ${where}`);
  }
  const lines: RunLine[] = [];
  for (const lease of leases) {
    const resource = resourceOfLease(lease.metadata.name);
    if (resource !== undefined) {
      lines.push({
        ...leaseLineOf(lease, now),
        resource,
        ...(await progressOf(client, lease, { ...options, resource })),
      });
    }
  }
  return lines.toSorted((a, b) => a.resource.localeCompare(b.resource));
}

/** Whether a run is about a resource, also where its Lease has a digest in place of a long name. */
export function isRunOf({ lease }: RunLine, resource: string): boolean {
  return lease.endsWith(`/${leaseNameOf(resource)}`);
}

async function findLeases(
  { transport }: ApiClient,
  { namespaces, query }: { readonly query: Readonly<Record<string, string>>; readonly namespaces: readonly string[] },
  { signal }: CallOptions,
): Promise<FoundLeases> {
  const list = (namespace?: string): Promise<FoundLeases | undefined> =>
    unlessForbidden(async () => {
      const path = collectionPath(LEASES, namespace);
      const { body, serverTime } = await transport.request<ListAnswer<Lease>>({ method: "GET", path, query, signal });
      return { leases: allItemsOf(body, path), now: serverTime ?? systemClock.now() };
    });
  const everywhere = await list();
  if (everywhere !== undefined) {
    return everywhere;
  }
  const found = await Promise.all(namespaces.map(list));
  return {
    leases: found.flatMap((one) => one?.leases ?? []),
    now: found.find((one) => one !== undefined)?.now ?? systemClock.now(),
    unread: namespaces.filter((_, index) => found[index] === undefined),
  };
}

/** The Date of an answer has whole seconds, and so has the time of a managedFields entry. */
const ROUNDING_MS = 2_000;

/** @param now milliseconds since the Unix epoch, by the clock of an API server */
function leaseLineOf(lease: Lease, now: number): LeaseLine {
  const { name, namespace = "" } = lease.metadata;
  const [holder, renewed] = [holderOf(lease), renewedOf(lease)];
  const ageMs = now - Date.parse(renewed ?? "");
  const isAlive = Math.abs(ageMs) <= observedMsOf(lease) + ROUNDING_MS;
  const held = isAlive ? "alive" : ageMs < 0 ? "unknown" : "silent";
  return {
    state: holder === "" ? "released" : held,
    lease: `${namespace}/${name}`,
    ...(holder === "" ? {} : { holder }),
    ...(renewed === undefined ? {} : { renewed }),
  };
}

/** An API server stamps what it writes: `renewTime` is by the clock of the holder, which may be wrong by hours. */
function renewedOf({ metadata: { managedFields = [] }, spec }: Lease): string | undefined {
  const stamps = managedFields.flatMap(({ fieldsV1, time }) => {
    const { "f:spec": fields = {} } = (fieldsV1 ?? {}) as { "f:spec"?: object };
    return time !== undefined && Object.hasOwn(fields, "f:renewTime") ? [time] : [];
  });
  return stamps.toSorted().at(-1) ?? spec?.renewTime;
}

async function progressOf(
  client: ApiClient,
  { metadata }: Lease,
  { resource, ...options }: CallOptions & { readonly resource: string },
): Promise<Pick<RunLine, "checkpoint" | "objects">> {
  const text = metadata.annotations?.[CHECKPOINT_ANNOTATION];
  const crd = await readCrdOf(client, resource, options);
  const counts = crd === undefined ? undefined : shownProgressOf(text, crd);
  const objects = crd === undefined ? undefined : await countOf(client, crd, options);
  return {
    ...(counts === undefined ? {} : { checkpoint: counts.current + counts.gone + counts.newer }),
    ...(objects === undefined ? {} : { objects }),
  };
}

async function readCrdOf(
  client: ApiClient,
  name: string,
  options: CallOptions,
): Promise<CustomResourceDefinition | undefined> {
  return name.includes(".")
    ? (await listNamed<CustomResourceDefinition>(client.transport, CRDS, { name }, options)).object
    : undefined;
}

/** What cannot be counted is not shown: a version that is not served, objects that this user may not list, or a list that fails. */
async function countOf(
  client: ApiClient,
  crd: CustomResourceDefinition,
  options: CallOptions,
): Promise<number | undefined> {
  const version = requestVersionOf(crd);
  const { group, names } = crd.spec;
  if (version === undefined) {
    return undefined;
  }
  try {
    return await countObjects(client, { group, version, resource: names.plural }, options);
  } catch (error) {
    if (error instanceof ApiError) {
      return undefined;
    }
    throw error;
  }
}
