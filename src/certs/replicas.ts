import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { connect } from "node:tls";
import type { Logger } from "pino";
import { messageOf } from "../errors.ts";
import type { Client } from "../kube/client.ts";
import { unlessForbidden } from "../kube/errors.ts";
import { isIssuedBy } from "./secret-contents.ts";
import { serverNameOf, type ServiceNames } from "./service-names.ts";

/** Where a replica listens. */
export interface ReplicaAddress {
  readonly host: string;
  readonly port: number;
}

/**
 * The certificate that a replica serves to those who call it by a name.
 * @throws {Error} where it does not end a handshake.
 */
export type ServedBy = (address: ReplicaAddress, serverName: string, signal: AbortSignal) => Promise<X509Certificate>;

/** What the replicas serve. */
interface ReplicaReport {
  /** Those that serve another certificate, for a user. */
  readonly others: readonly string[];
  /** Those that could not be asked, with the reason. */
  readonly unasked: readonly string[];
}

interface EndpointSlice {
  readonly endpoints?:
    | readonly {
        readonly addresses: readonly string[];
        readonly conditions?: { readonly serving?: boolean };
      }[]
    | null;
  readonly ports?: readonly { readonly port?: number }[] | null;
}

/** A replica that does not end a TLS handshake within this time is not reachable from here, in milliseconds. */
const HANDSHAKE_TIMEOUT_MS = 5_000;

/**
 * The replicas that the Service sends requests to, by its EndpointSlices; those that end and still serve included.
 * `undefined` where the authorizer says that the user may not read them.
 * @throws {ApiError}
 */
export async function findReplicas(
  client: Client,
  { namespace, service }: ServiceNames,
  signal: AbortSignal,
): Promise<readonly ReplicaAddress[] | undefined> {
  const path = `/apis/discovery.k8s.io/v1/namespaces/${encodeURIComponent(namespace)}/endpointslices`;
  const query = { labelSelector: `kubernetes.io/service-name=${service}` };
  const slices = await unlessForbidden(client.list<EndpointSlice>(path, { query, signal }));
  return slices?.items.flatMap(addressesOf);
}

/** The serving addresses of one slice; its only port is the webhook's. */
function addressesOf({ endpoints, ports }: EndpointSlice): readonly ReplicaAddress[] {
  const port = ports?.[0]?.port;
  return (endpoints ?? [])
    .filter(({ conditions }) => conditions?.serving !== false)
    .flatMap(({ addresses }) => (port === undefined ? [] : addresses.map((host) => ({ host, port }))));
}

/**
 * The replicas that are known to serve a certificate of another CA than this one. For those that cannot be asked the
 * dwell time stands.
 * @throws as `findReplicas()`
 */
export async function othersThan(
  ca: X509Certificate | undefined,
  {
    client,
    logger,
    servedBy,
    settings,
    signal,
  }: {
    readonly client: Client;
    readonly logger: Logger;
    readonly servedBy?: ServedBy | undefined;
    readonly settings: ServiceNames & { readonly replicaEndpoints?: readonly ReplicaAddress[] | undefined };
    readonly signal: AbortSignal;
  },
): Promise<readonly string[]> {
  const addresses = settings.replicaEndpoints ?? (await findReplicas(client, settings, signal));
  if (addresses === undefined || ca === undefined) {
    logger.warn("Cannot list the replicas of the webhook, so only the dwell time stands for them");
    return [];
  }
  const isCurrent = (certificate: X509Certificate): boolean => isIssuedBy(certificate, ca);
  const { others, unasked } = await askReplicas(addresses, { names: settings, isCurrent, servedBy, signal });
  if (unasked.length > 0) {
    logger.warn({ unasked }, "Cannot ask some replicas of the webhook, so only the dwell time stands for them");
  }
  return others;
}

/** Asks each replica whether what it serves is current. */
async function askReplicas(
  addresses: readonly ReplicaAddress[],
  options: {
    readonly names: ServiceNames;
    readonly isCurrent: (certificate: X509Certificate) => boolean;
    readonly signal: AbortSignal;
    /** @default {@link shakeHands} */
    readonly servedBy?: ServedBy | undefined;
  },
): Promise<ReplicaReport> {
  const { names, isCurrent, servedBy = shakeHands, signal } = options;
  const others: string[] = [];
  const unasked: string[] = [];
  await Promise.all(
    addresses.map(async (address) => {
      const name = `${address.host}:${address.port}`;
      try {
        const certificate = await servedBy(address, serverNameOf(names), signal);
        if (!isCurrent(certificate)) {
          others.push(name);
        }
      } catch (error) {
        signal.throwIfAborted();
        unasked.push(`${name}: ${messageOf(error)}`);
      }
    }),
  );
  return { others, unasked };
}

/** By a TLS handshake. @throws {Error} of node:net or node:tls */
export async function shakeHands(
  { host, port }: ReplicaAddress,
  servername: string,
  signal: AbortSignal,
): Promise<X509Certificate> {
  // Only what it serves is looked at, nothing is sent: whether it is trusted is for the caller to say.
  const socket = connect({ host, port, servername, rejectUnauthorized: false });
  try {
    const timeout = AbortSignal.any([signal, AbortSignal.timeout(HANDSHAKE_TIMEOUT_MS)]);
    await once(socket, "secureConnect", { signal: timeout });
    return new X509Certificate(socket.getPeerCertificate().raw);
  } finally {
    socket.on("error", () => undefined);
    socket.destroy();
  }
}
