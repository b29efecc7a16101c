import { KsvmError, messageOf } from "../errors.ts";
import type { Client } from "../kube/client.ts";
import { ApiError, isForbidden, unlessForbidden } from "../kube/errors.ts";
import { Connection } from "../kube/http.ts";
import { type KubeList, type Lease, LEASES } from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";

/** What a user says about the API servers. */
export interface ApiServerOptions {
  /** The address of each (`--apiserver-endpoints`). @default they are found */
  readonly endpoints?: readonly string[] | undefined;
  /** Names of identity Leases whose API servers are gone for good (`--ignore-apiserver`). @default none */
  readonly ignored?: readonly string[] | undefined;
}

/** What all API servers answered to one question. */
export interface Answers<T> {
  readonly answers: readonly { readonly address: string; readonly answer: T }[];
  /** Which processes there were. It differs where one was restarted, has joined or has left. */
  readonly processes: string;
  /** Whether they were told apart behind one address, since their own cannot be reached. */
  readonly isSampled: boolean;
}

/**
 * An API server that may live was not asked, or is behind. Nothing is concluded about it: it is waited for, without a
 * freeze, for a little longer than its identity Lease lives.
 */
export class ApiServerMissing extends KsvmError {
  override readonly name = "ApiServerMissing";

  constructor(reason: string) {
    super("ApiServerMissing", `Cannot continue without every API server: ${reason}`);
  }
}

const REMEDY =
  "if the host of one is gone, delete its identity Lease in kube-system, or pass its name with --ignore-apiserver; " +
  "--apiserver-endpoints names the API servers by hand";

/** One kube-apiserver process, on a connection of its own. */
interface Instance {
  readonly client: Client;
  readonly connection: Connection;
  /** When it started; what tells it from any other process. `undefined` where it is the only one. */
  readonly started: string | undefined;
}

/**
 * Finds every API server anew, and asks each one. As many processes must answer as there are identity Leases, so one
 * that hangs is missed for as long as its Lease lives: an hour.
 *
 * An answer counts only if the connection led to the same process before and after it: behind a load balancer a new
 * connection may lead to another one. The first failure ends the other questions.
 *
 * @throws {ApiServerMissing} where one cannot be found, or does not answer in the end; what `ask` throws.
 */
export async function askEach<T>(
  client: Client,
  options: ApiServerOptions,
  ask: (apiServer: Client, signal: AbortSignal) => Promise<T>,
  signal: AbortSignal,
): Promise<Answers<T>> {
  const leases = options.endpoints === undefined ? await identityLeases(client, options, signal) : undefined;
  const { instances, isSampled } = await find(client, options, leases, signal);
  const over = new AbortController();
  const asking = AbortSignal.any([signal, over.signal]);
  try {
    const answers = await Promise.all(
      instances.map(async (instance) => {
        const answer = await ask(instance.client, asking);
        const { started } = instance;
        if (started !== undefined && (await startTime(instance.client, asking)) !== started) {
          throw new ApiServerMissing(`the connection to ${instance.client.address} led to another one meanwhile`);
        }
        return { address: instance.client.address, answer };
      }),
    );
    return { answers, isSampled, processes: processesOf(leases, instances) };
  } finally {
    over.abort();
    for (const { connection } of instances) connection.end();
  }
}

/** The holder of an identity Lease is its name, an underscore and a UUID of the process. */
function processesOf(leases: readonly Lease[] | undefined, instances: readonly Instance[]): string {
  const holders = (leases ?? []).map(({ metadata, spec }) => spec?.holderIdentity ?? metadata.name);
  const started = instances.flatMap((instance) => instance.started ?? []);
  return [...holders.toSorted(), ...started.toSorted()].join(" ");
}

/**
 * New connections through a load balancer, until each API server has answered on one, or so many in a row led to no
 * new one. By chance that misses one of five API servers once in 35 looks, and the next look finds it.
 */
const KNOWN_IN_A_ROW = 16;

async function find(
  client: Client,
  { endpoints }: ApiServerOptions,
  leases: readonly Lease[] | undefined,
  signal: AbortSignal,
): Promise<{ readonly instances: readonly Instance[]; readonly isSampled: boolean }> {
  const addresses = endpoints ?? (await slicedAddresses(client, signal));
  const wanted = leases?.length ?? Math.max(1, addresses.length);
  // One that a user names may be a balancer of several: only a Lease says that there is one.
  if (leases?.length === 1 && addresses.length <= 1) {
    const connection = new Connection();
    return { instances: [{ client: client.over(connection), connection, started: undefined }], isSampled: false };
  }
  const found = new Map<string, Instance>();
  const silent: string[] = [];
  /** @returns whether it led to one that was not known */
  const connectTo = async (address: string): Promise<boolean> => {
    const connection = new Connection();
    try {
      const instance = client.over(connection, address);
      const started = await startTime(instance, signal);
      if (!found.has(started)) {
        found.set(started, { client: instance, connection, started });
        return true;
      }
      connection.end();
    } catch (error) {
      connection.end();
      signal.throwIfAborted();
      if (error instanceof KsvmError && !(error instanceof ApiError)) throw error;
      silent.push(`${address} (${messageOf(error).slice(0, 200)})`);
    }
    return false;
  };
  let isSampled = false;
  try {
    // All of them, so that none is left open where one fails.
    const looks = await Promise.allSettled(addresses.map(connectTo));
    for (const look of looks) if (look.status === "rejected") throw look.reason;
    // A proxy of HTTP, whose address has a path, may choose an API server for each request.
    const mayBalance = endpoints === undefined && new URL(client.address).pathname === "/";
    for (let known = mayBalance ? 0 : KNOWN_IN_A_ROW; found.size < wanted && known < KNOWN_IN_A_ROW; known++) {
      isSampled = true;
      if (await connectTo(client.address)) known = -1;
    }
    if (found.size < wanted) throw missing({ leases, wanted, found: found.size, silent });
  } catch (error) {
    for (const { connection } of found.values()) connection.end();
    throw error;
  }
  return { instances: [...found.values()], isSampled };
}

function missing({
  found,
  leases,
  silent,
  wanted,
}: {
  readonly leases: readonly Lease[] | undefined;
  readonly wanted: number;
  readonly found: number;
  readonly silent: readonly string[];
}): ApiServerMissing {
  // The one that was not renewed for longest comes first.
  const byRenewal = (leases ?? []).toSorted((a, b) => (String(a.spec?.renewTime) < String(b.spec?.renewTime) ? -1 : 1));
  const named = byRenewal.map(({ metadata, spec }) => {
    const host = metadata.labels?.["kubernetes.io/hostname"];
    return `${metadata.name}${host === undefined ? "" : ` of host ${host}`}, last renewed ${String(spec?.renewTime)}`;
  });
  const lives = leases === undefined ? "" : `; identity Leases: ${named.join("; ")}`;
  const quiet = silent.length === 0 ? "" : `; no answer from ${[...new Set(silent)].slice(0, 5).join(", ")}`;
  return new ApiServerMissing(`${found} of ${wanted} answer${quiet}${lives}; ${REMEDY}`);
}

const IDENTITIES = `${LEASES}/kube-system/leases`;

/**
 * The Lease by which each API server says that it lives. One that has expired counts as well, until an API server
 * deletes it: no wall clock takes part.
 *
 * @throws {ApiServerMissing} where there is none; {KsvmError} Forbidden where this user may not list them
 */
export async function identityLeases(
  client: Client,
  { ignored = [] }: ApiServerOptions,
  signal: AbortSignal,
): Promise<readonly Lease[]> {
  const query = { labelSelector: "apiserver.kubernetes.io/identity=kube-apiserver" };
  const list = (): Promise<KubeList<Lease>> => client.list<Lease>(IDENTITIES, { query, signal });
  // An API server that has just started refuses for a moment.
  const listed = await unlessForbidden(retry(client, list, { signal }));
  if (listed === undefined) {
    const text = "this user may not list Leases in kube-system; grant that, or name each with --apiserver-endpoints";
    throw new KsvmError("Forbidden", `Cannot find the API servers: ${text}`);
  }
  const leases = listed.items.filter(({ metadata }) => !ignored.includes(metadata.name));
  if (leases.length > 0) return leases;
  throw new ApiServerMissing("kube-system has no identity Lease of one; name each with --apiserver-endpoints");
}

interface EndpointSlice {
  readonly endpoints?: readonly { readonly addresses: readonly string[] }[] | null;
  readonly ports?: readonly { readonly port?: number }[] | null;
}

/** Where EndpointSlice `kubernetes` says that API servers are. None where this user may not see it. */
async function slicedAddresses(client: Client, signal: AbortSignal): Promise<readonly string[]> {
  const path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
  const query = { labelSelector: "kubernetes.io/service-name=kubernetes" };
  const list = (): Promise<KubeList<EndpointSlice> | undefined> =>
    unlessForbidden(client.list<EndpointSlice>(path, { query, signal }));
  const slices = (await retry(client, list, { signal }))?.items ?? [];
  const addresses = slices.flatMap(({ endpoints, ports }) =>
    (endpoints ?? []).flatMap((endpoint) =>
      endpoint.addresses.map((ip) => `https://${ip.includes(":") ? `[${ip}]` : ip}:${ports?.[0]?.port ?? 443}`),
    ),
  );
  return [...new Set(addresses)];
}

/** An API server that is there answers at once. */
const ANSWER_MS = 5_000;
/** The metrics of an API server with thousands of resources have tens of megabytes. */
const METRICS_MS = 20_000;

/**
 * When an API server started, to a hundredth of a second. Two that started at the same time count as one, so that one
 * too few is found, never one too many.
 *
 * @throws {KsvmError} Forbidden where this user may not read metrics; {ApiError} where none came
 */
async function startTime(client: Client, signal: AbortSignal): Promise<string> {
  const started = /^process_start_time_seconds(?:\{[^}]*\})? (\S+)/;
  let found: string | undefined;
  const read = (): Promise<void> =>
    readMetrics(client, signal, (line) => {
      found ??= started.exec(line)?.[1];
    });
  // One that has just started refuses for a moment. Other failures are not tried again: whoever looks does that.
  const refused = await read().then(() => false, rethrowUnlessForbidden);
  const isRefused = refused && (await retry(client, read, { signal }).then(() => false, rethrowUnlessForbidden));
  if (isRefused) {
    const text = 'this user may not get the nonResourceURL "/metrics"; grant that';
    throw new KsvmError("Forbidden", `Cannot tell the API servers apart: ${text}`);
  }
  if (found !== undefined) return found;
  throw new ApiError("GET /metrics", 0, `${client.address} does not tell when it started`);
}

function rethrowUnlessForbidden(error: unknown): true {
  if (isForbidden(error)) return true;
  throw error;
}

/** Reads the metrics of one API server line by line, to their end: one that is left half read ends the connection. */
export async function readMetrics(client: Client, signal: AbortSignal, onLine: (line: string) => void): Promise<void> {
  const within = AbortSignal.any([signal, client.clock.timeout(METRICS_MS)]);
  try {
    for await (const line of await client.lines("/metrics", {
      accept: "text/plain",
      timeoutMs: ANSWER_MS,
      signal: within,
    })) {
      onLine(line);
    }
  } catch (error) {
    signal.throwIfAborted();
    throw within.aborted ? new ApiError("GET /metrics", 0, `no whole answer within ${METRICS_MS / 1_000} s`) : error;
  }
}

/** An API server that lives renews its identity Lease every 10 s, and up to half a second later. */
const WATCH_LEASES_MS = 15_000;
const OVERDUE_MS = 30_000;

function renewedAt({ spec }: Lease): number {
  return Date.parse(String(spec?.renewTime)) || 0;
}

/** The identity Leases that are overdue, and stand still while they are watched for 15 s. */
export async function silentLeases(client: Client, signal: AbortSignal): Promise<readonly Lease[]> {
  const before = await identityLeases(client, {}, signal);
  // That of the API server that answered is among them, so no clock of this machine takes part.
  const newest = Math.max(...before.map(renewedAt));
  const overdue = before.filter((lease) => newest - renewedAt(lease) > OVERDUE_MS);
  if (overdue.length === 0) return [];
  await client.clock.sleep(WATCH_LEASES_MS, signal);
  const versions = overdue.map(({ metadata }) => metadata.resourceVersion);
  const now = await identityLeases(client, {}, signal);
  return now.filter(({ metadata }) => versions.includes(metadata.resourceVersion));
}
