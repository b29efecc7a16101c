import { X509Certificate } from "node:crypto";
import { ApiServerFinder } from "../../../src/apiservers/api-server-finder.ts";
import { SeenServers } from "../../../src/apiservers/seen-servers.ts";
import { WEBHOOK_NAME, WEBHOOK_SECRET, WEBHOOK_SERVICE } from "../../../src/api/names.ts";
import {
  type CertificateSettings,
  DEFAULT_FOLLOW_TIMEOUT_MS,
  type EnsureOptions,
} from "../../../src/certs/ensure-options.ts";
import type { ServedBy } from "../../../src/certs/replicas.ts";
import {
  DEFAULT_APISERVER_DWELL_MS,
  DEFAULT_RENEW_BEFORE,
  DEFAULT_REPLICA_DWELL_MS,
} from "../../../src/certs/rotation-plan.ts";
import { DEFAULT_CA_LIFETIME_MS, DEFAULT_SERVING_LIFETIME_MS } from "../../../src/certs/lifetimes.ts";
import type { ApiClient } from "../../../src/kube/client.ts";
import { Retrier } from "../../../src/retry/retrier.ts";
import type { SimProcess } from "../world/sim-process.ts";
import { REPLICA_PORT } from "../world/sim-webhook-service.ts";
import type { World } from "../world/world.ts";
import { installedIn, NAMESPACE } from "./installed-webhook.ts";
import { programLogger } from "./program-logger.ts";

/** A handshake with a process that stands still is given up after this time, in milliseconds. */
const HANDSHAKE_TIMEOUT_MS = 5_000;
const LATENCY_MS = 1;

/** Which certificates are kept in a world, and how. */
export function certificateSettings({ plan: { lifetimes }, settings }: World): CertificateSettings {
  return {
    shutdownDelayMs: settings.options.shutdownDelayMs ?? 0,
    caLifetimeMs: lifetimes?.caMs ?? DEFAULT_CA_LIFETIME_MS,
    servingLifetimeMs: lifetimes?.servingMs ?? DEFAULT_SERVING_LIFETIME_MS,
    namespace: NAMESPACE,
    service: WEBHOOK_SERVICE,
    secret: WEBHOOK_SECRET,
    webhookConfiguration: WEBHOOK_NAME,
    renewBefore: DEFAULT_RENEW_BEFORE,
    apiServerDwellMs: DEFAULT_APISERVER_DWELL_MS,
    replicaDwellMs: DEFAULT_REPLICA_DWELL_MS,
    timeoutMs: DEFAULT_FOLLOW_TIMEOUT_MS,
  };
}

/** What a process keeps certificates with, as `ksvm controller` and `ksvm certs` are handed it. */
export function certificateTools(
  world: World,
  process: SimProcess,
  { client, signal }: { readonly client: ApiClient; readonly signal: AbortSignal },
): EnsureOptions & { readonly close: () => Promise<void> } {
  const { clock } = process;
  const { maxIdleMs, options, webhookWaitMs } = world.settings;
  const retrier = new Retrier({ clock, random: Math.random, maxIdleMs, webhookWaitMs });
  const finder = new ApiServerFinder({
    client,
    clock,
    retrier,
    seen: new SeenServers(clock),
    shutdownDelayMs: options.shutdownDelayMs ?? 0,
    strict: false,
    timeoutMs: options.convergenceTimeoutMs,
    onLag: () => undefined,
  });
  return {
    settings: certificateSettings(world),
    client,
    clock,
    retrier,
    logger: programLogger(world, process, "silent"),
    signal,
    keys: installedIn(world).keys,
    servedBy: servedIn(world, process),
    findApiServers: (within: AbortSignal) => finder.find(within),
    onStep: (text: string) => world.tell(process.name, text),
    close: () => finder.close(),
  };
}

/** A handshake with a replica: one that stands still ends none. */
export function servedIn(world: World, { clock }: SimProcess): ServedBy {
  const { service } = installedIn(world);
  return async ({ host, port }, _serverName, signal) => {
    await clock.sleep(LATENCY_MS, signal);
    const replica = port === REPLICA_PORT ? service.at(host) : undefined;
    if (replica === undefined) throw new Error("connect ECONNREFUSED");
    if (replica.process.isPaused) {
      await clock.sleep(HANDSHAKE_TIMEOUT_MS, signal);
      throw new Error("the handshake took too long");
    }
    const certPem = replica.certPem();
    if (certPem === undefined) throw new Error("the handshake failed");
    return new X509Certificate(certPem);
  };
}
