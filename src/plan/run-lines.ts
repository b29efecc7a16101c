import { holderOf, type Lease } from "../api/lease.ts";
import { CONTROLLER_LEASE, SYSTEM_NAMESPACE } from "../api/migration.ts";
import { MANAGED_BY, MANAGED_BY_LABEL } from "../api/names.ts";
import { systemClock } from "../clock.ts";
import { DEFAULT_LEASE_NAMESPACE, leaseName } from "../migrator/run-lease.ts";
import type { CallOptions } from "../old/kube/call-options.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { selectorOfName } from "../old/kube/field-selector.ts";
import { allItemsOf, type ListAnswer } from "../old/kube/listed-items.ts";
import { collectionPath, LEASES } from "../old/kube/resources.ts";
import { unlessForbidden } from "../old/kube/unless-forbidden.ts";

/**
 * What a Lease says of its holder.
 *
 * - `alive`: it was renewed within its duration
 * - `silent`: it was not, so that its holder was killed, cannot reach the API server, or ended while late writes may
 *   come
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

/** A run on one resource: of `ksvm migrate`, `reencrypt` or `doctor`, or of a controller. */
export interface RunLine extends LeaseLine {
  readonly resource: string;
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
 * @throws {ApiError}
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
 * The runs that hold a Lease, and those that left a checkpoint there.
 * @throws {ApiError}
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
    onUnknown(`runs: this user may not list Leases in ${where}`);
  }
  const prefix = leaseName("");
  const lines = leases
    .filter(({ metadata: { name } }) => name.startsWith(prefix))
    .map((lease) => ({ ...leaseLineOf(lease, now), resource: lease.metadata.name.slice(prefix.length) }));
  return lines.toSorted((a, b) => a.resource.localeCompare(b.resource));
}

/** Whether a run is about a resource, also where its Lease has a digest in place of a long name. */
export function isRunOf({ lease }: RunLine, resource: string): boolean {
  return lease.endsWith(`/${leaseName(resource)}`);
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
/** Those of runs, in seconds. No run waits for longer than a minute, whatever a Lease says. */
const DEFAULT_DURATION_S = 15;
const MAX_DURATION_S = 60;

/** @param now milliseconds since the Unix epoch, by the clock of an API server */
function leaseLineOf(lease: Lease, now: number): LeaseLine {
  const { name, namespace = "" } = lease.metadata;
  const [holder, renewed] = [holderOf(lease), renewedOf(lease)];
  const ageMs = now - Date.parse(renewed ?? "");
  const durationS = Math.min(lease.spec?.leaseDurationSeconds ?? DEFAULT_DURATION_S, MAX_DURATION_S);
  const isAlive = Math.abs(ageMs) <= durationS * 1_000 + ROUNDING_MS;
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
