import type { Random } from "../../chaos/random.ts";
import { ClusterConfig } from "../../../src/kube/connect/cluster-config.ts";
import { ApiClient } from "../../../src/kube/client.ts";
import { Transport } from "../../../src/kube/transport.ts";
import type { RequestObserver } from "../../../src/kube/transport-options.ts";
import type { DenyRule } from "../model/access-table.ts";
import type { ModelRequest, WebhookAnswer } from "../model/types.ts";
import { type EtcdSnapshot, SimEtcd } from "../model/etcd.ts";
import type { EtcdEntry } from "../model/timeline.ts";
import { RELEASE_1_36 } from "../model/resource-table.ts";
import { configHashOf, type Encryption, PLAIN_TEXT } from "../model/encryption-configuration.ts";
import { ApiServerNode, type ServerBuild, type WebhookCaller } from "./api-server-node.ts";
import { type Fate, Network, type OnExchange, type Peer } from "./network.ts";
import { oneOf, spread } from "./random-choices.ts";
import { LeaseLooks } from "./lease-looks.ts";
import type { Schedule } from "./schedule.ts";
import type { SimProcess, StandSort } from "./sim-process.ts";
import type { Streams } from "./streams.ts";

const LEASE_PREFIX = "/registry/leases/";
const DEFAULT_BUILD: ServerBuild = { release: RELEASE_1_36, encryption: PLAIN_TEXT };

/** The address that all API servers share. */
export const BALANCER_URL = "https://balancer.sim:6443";
const SLICE_KEY = "/registry/endpointslices/default/kubernetes";
/** Others take the address of an API server out of the EndpointSlice so long after it crashed. */
const ENDPOINT_TTL_MS = 15_000;

/** How long nothing answers while etcd is restored: less than a Lease is believed without a renewal. */
const RESTORE_MS = 1_000;

/** What a {@link SimCluster} is made of. */
export interface SimClusterOptions {
  readonly schedule: Schedule;
  readonly streams: Streams;
  readonly servers: number;
  /** Whether each API server can be reached by its own address. */
  readonly access: "each" | "sampled";
  /** How all API servers are started at first. @default {@link DEFAULT_BUILD} */
  readonly build?: ServerBuild;
}

/** What comes in the place of an API server's answer: a page, or a Status without words unless `body` is given. */
export interface FalseAnswer {
  readonly status: number;
  readonly html?: boolean;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: object;
  /** The whole body, where it is no Status of a failure. */
  readonly text?: string;
}

/** How a process reaches the cluster. */
export interface ClientOptions {
  /** @default the address in its kubeconfig */
  readonly server?: string;
  /** Told of its requests, for metrics. */
  readonly observer?: RequestObserver;
}

/** How etcd is restored. */
export interface RestoreOptions {
  /** Leases are in an etcd of their own (`--etcd-servers-overrides`). @default false */
  readonly keepsLeases?: boolean;
  /** Revisions go on this much later (`--bump-revision`). @default 0 */
  readonly bump?: number;
}

/** What is made of an API server's answer with the status 200. */
export interface Passage {
  readonly pass: (body: string) => string;
}

/** What is done to requests of ksvm on their way; `undefined` lets one pass. */
export type Interference = (user: string, request?: ModelRequest) => Fate["kind"] | FalseAnswer | Passage | undefined;

/** A webhook: what it answers to a body, and to whom. */
export type SimWebhook = (body: string, caller: WebhookCaller) => Promise<WebhookAnswer>;

/** A cluster: one etcd, API servers that come and go, a balancer before them, webhooks. */
export class SimCluster {
  readonly etcd = new SimEtcd();
  readonly webhooks = new Map<string, SimWebhook>();
  /** When processes looked at the identity Leases. */
  readonly looks = new LeaseLooks();
  /** What is done to requests now, the earliest first. */
  readonly #interferences = new Set<Interference>();
  /** How the API server in each slot is started from now on. */
  readonly builds = new Map<number, ServerBuild>();
  /** The slots of API servers that left for good. */
  readonly #gone = new Set<number>();
  /** When the keys of an API server last changed, in milliseconds since the world began. */
  encryptedAt = 0;
  /** When an API server last joined that writes with another key than the one before it, in the same way; `undefined` where none did. */
  visitedAt: number | undefined;
  /** Told of each request that a process sends, and of how it ended. */
  onExchange: OnExchange = () => () => undefined;
  /** Told of each request of a client, before it is sent. @returns how long it is held on its way, in milliseconds */
  onSend: (request: ModelRequest) => number = () => 0;
  /** By the digests of the configurations that API servers had. */
  readonly #keys = new Map<string, number>();
  readonly #onRequest: ((request: ModelRequest, server: string, fate: Fate) => void)[] = [];
  /** How many requests came from clients. */
  requests = 0;
  readonly #options: SimClusterOptions;
  readonly #network: Network;
  readonly #nodes: ApiServerNode[] = [];
  #denied: readonly DenyRule[] = [];
  /** By users: what decides which API server a request meets, and what becomes of it. */
  readonly #fates = new Map<string, Random>();

  constructor(options: SimClusterOptions) {
    this.#options = options;
    const { schedule, streams } = options;
    this.#network = new Network({
      schedule,
      latencyOf: (process) => {
        const random = streams(`way of ${process}`);
        return () => spread(random, 0.2, 5);
      },
      onExchange: (request, process) => {
        const ended = this.onExchange(request, process);
        return this.looks.follow(request, { user: process.name, at: schedule.now, ended });
      },
      route: (request, server, pinned) => {
        const holdMs = this.onSend(request);
        const fate = { ...this.#route(request, server, pinned), holdMs };
        if (fate.kind === "answered") this.looks.answeredFalsely(request);
        for (const told of this.#onRequest) told(request, server, fate);
        return fate;
      },
    });
    for (let slot = 0; slot < 5; slot++) this.builds.set(slot, options.build ?? DEFAULT_BUILD);
    for (let slot = 0; slot < options.servers; slot++) this.join();
  }

  /** Has something done to requests, beside what is done already, which comes first. @returns what ends it */
  interfere(interference: Interference): () => void {
    this.#interferences.add(interference);
    return () => this.#interferences.delete(interference);
  }

  /** Nothing is done to requests any more. */
  endInterferences(): void {
    this.#interferences.clear();
  }

  /** Has `told` hear of each request of a client, as it is sent. */
  onRequest(told: (request: ModelRequest, server: string, fate: Fate) => void): void {
    this.#onRequest.push(told);
  }

  /** What users may not do, by the RBAC of the cluster. */
  get denied(): readonly DenyRule[] {
    return this.#denied;
  }

  set denied(rules: readonly DenyRule[]) {
    this.#denied = rules;
    for (const { api } of this.nodes) api.denied = rules;
  }

  get schedule(): Schedule {
    return this.#options.schedule;
  }

  /** Those that take requests now, whether they answer or not. */
  get nodes(): readonly ApiServerNode[] {
    return this.#nodes.filter(({ isListening }) => isListening);
  }

  /** Those that have begun to end, and may have requests under way. */
  get leaving(): readonly ApiServerNode[] {
    return this.#nodes.filter(({ isLeaving, process }) => isLeaving && process.isAlive);
  }

  /** The one in a slot, `undefined` while there is none that stays. */
  nodeAt(slot: number): ApiServerNode | undefined {
    const node = this.#nodes[slot];
    return node?.process.isAlive === true && !node.isLeaving ? node : undefined;
  }

  /**
   * An API server joins on a host of its own, as long as there are fewer than five: control planes have no more.
   * @returns it, where it joined
   */
  join(): ApiServerNode | undefined {
    const slot = this.#nodes.length;
    if (slot >= 5) return undefined;
    if (this.buildOf(slot).encryption.writes !== this.buildOf(slot - 1).encryption.writes) {
      this.visitedAt = this.#options.schedule.now;
    }
    return this.#start(slot);
  }

  /** The slot of the next API server that joins; `undefined` where there are as many as there may be. */
  get freeSlot(): number | undefined {
    return this.#nodes.length < 5 ? this.#nodes.length : undefined;
  }

  /**
   * Ends an API server in order, for good unless it is to come back: it takes its identity Lease and its address with it.
   * @param how `delayMs`: for how long it takes requests after that. @default one that stops at once, as by a crash
   */
  leave(slot: number, { delayMs, backMs }: { readonly delayMs?: number; readonly backMs?: number } = {}): void {
    const node = this.#nodes[slot];
    if (node?.isLeaving === true) return;
    if (backMs === undefined) this.#gone.add(slot);
    if (node === undefined) return;
    if (backMs !== undefined) node.process.onCrash(() => this.#startIn(slot, backMs));
    if (delayMs === undefined || !node.process.isAlive || node.process.isPaused) {
      // Of one that is down at the moment, an administrator takes them away.
      node.api.deleteLease();
      node.process.crash();
    } else {
      const isOther = node.api.encryption !== this.buildOf(slot).encryption || backMs === undefined;
      if (isOther) node.process.onCrash(() => (this.encryptedAt = this.#options.schedule.now));
      node.leave(delayMs, this.looks.usersSince(node.startedAt));
    }
    this.#writeEndpoints();
  }

  /** Whether the one in a slot left for good. */
  isGone(slot: number): boolean {
    return this.#gone.has(slot);
  }

  /** Those that have begun to end do so at once. */
  endLeaving(): void {
    for (const { process } of this.leaving) process.crash();
  }

  /** Ends an API server, as a crash does; it is started again after `ms` milliseconds. */
  crash(slot: number, ms: number): void {
    const node = this.nodeAt(slot);
    if (node === undefined) return;
    node.process.crash();
    this.#options.schedule.in(ENDPOINT_TTL_MS, () => this.#writeEndpoints());
    this.#startIn(slot, ms);
  }

  /** Has an API server hang for `ms` milliseconds. Once that takes longer, others take its address out of the EndpointSlice. */
  standStill(slot: number, ms: number, how: StandSort): void {
    this.nodeAt(slot)?.standStill(ms, how);
    this.#options.schedule.in(ENDPOINT_TTL_MS, () => this.#writeEndpoints());
    this.#options.schedule.in(ms + 1, () => this.#writeEndpoints());
  }

  /** Has every API server that hangs go on. */
  wakeAll(): void {
    for (const { process } of this.nodes) if (process.isPaused) process.wake();
    this.#writeEndpoints();
  }

  /** Ends all API servers, restores etcd, and starts them again, but for those that left since: an administrator takes their Leases away. */
  restore(snapshot: EtcdSnapshot, { bump, keepsLeases = false }: RestoreOptions = {}): void {
    for (const { process } of this.#nodes) process.crash();
    const leases = keepsLeases ? this.etcd.range(LEASE_PREFIX) : undefined;
    this.etcd.restore(snapshot, bump);
    if (leases !== undefined) this.#putLeases(leases);
    for (const slot of this.#gone) this.#nodes[slot]?.api.deleteLease();
    for (const slot of this.#nodes.keys()) this.#startIn(slot, RESTORE_MS);
  }

  /** How the API server in a slot is started from now on. */
  buildOf(slot: number): ServerBuild {
    return this.builds.get(slot) ?? DEFAULT_BUILD;
  }

  /** Gives an API server another encryption configuration, which it has once it is started or reads it. */
  configure(slot: number, encryption: Encryption): void {
    this.encryptedAt = this.#options.schedule.now;
    this.builds.set(slot, { ...this.buildOf(slot), encryption });
  }

  /** Has an API server that lives read its configuration again; one that stands still reads it as it is when it goes on. */
  reload(slot: number): void {
    const node = this.nodeAt(slot);
    node?.process.reach(() => {
      const { encryption } = this.buildOf(slot);
      this.encryptedAt = this.#options.schedule.now;
      this.#note(encryption);
      node.api.reload(encryption);
    });
  }

  /** The key that a configuration writes with; `undefined` where no API server ever had it. */
  keyOf(configHash: string): number | undefined {
    return this.#keys.get(configHash);
  }

  #note(encryption: Encryption): void {
    this.#keys.set(configHashOf(encryption), encryption.writes);
  }

  /** A client of a process, whose user is its name. */
  clientOf(process: SimProcess, { observer, server = this.#address() }: ClientOptions = {}): ApiClient {
    const cluster = { name: "sim", server, skipTLSVerify: true };
    const user = { name: process.name, token: process.name };
    const config = new ClusterConfig(cluster, user, { context: "sim" });
    const carrier = this.#network.carrierOf(process);
    return new ApiClient(new Transport(config, { clock: process.clock, carrier, observer }));
  }

  #address(): string {
    return this.#options.access === "each" ? urlOf(0) : BALANCER_URL;
  }

  /** The Leases as they are in another etcd. Their resourceVersions are those of this one. */
  #putLeases(leases: readonly EtcdEntry[]): void {
    for (const { key, modRevision } of this.etcd.range(LEASE_PREFIX)) this.etcd.delete(key, modRevision);
    for (const { key, object } of leases) this.etcd.put(key, { object }, 0);
  }

  /** One that left for good, also while it was down, is not started again. */
  #startIn(slot: number, ms: number): void {
    this.#options.schedule.in(ms, () => {
      if (this.#nodes[slot]?.process.isAlive !== true && !this.#gone.has(slot)) this.#start(slot);
    });
  }

  #start(slot: number): ApiServerNode {
    const build = this.buildOf(slot);
    this.#note(build.encryption);
    const node = new ApiServerNode({
      schedule: this.#options.schedule,
      random: this.#options.streams(`server-${slot}`),
      etcd: this.etcd,
      name: `server-${slot}`,
      url: urlOf(slot),
      build,
      callWebhook: (url, body, caller) => this.#callWebhook(url, body, caller),
    });
    node.api.denied = this.#denied;
    this.#nodes[slot] = node;
    this.#writeEndpoints();
    return node;
  }

  async #callWebhook(url: string, body: string, caller: WebhookCaller): Promise<WebhookAnswer> {
    const { schedule, streams } = this.#options;
    const random = streams("webhooks");
    await schedule.wait(spread(random, 0.2, 5));
    const webhook = this.webhooks.get(url.split("?")[0] ?? url);
    if (webhook === undefined) return { error: "dial tcp: connect: connection refused" };
    const answer = await webhook(body, caller);
    await schedule.wait(spread(random, 0.2, 5));
    return answer;
  }

  #route(request: ModelRequest, server: string, pinned: Peer | undefined): Fate {
    this.requests++;
    const random = this.#fateOf(request.user);
    const peer = this.#peerFor(random, server, pinned);
    const harm = this.harmOf(request);
    if (harm === "lost" || harm === "reset") return { kind: harm, peer: random() < 0.5 ? peer : undefined };
    if (typeof harm === "object" && "status" in harm) return { kind: "answered", answer: answerOf(harm) };
    if (peer === undefined) return { kind: "reset", peer };
    return { kind: "delivered", peer, ...(typeof harm === "object" ? harm : {}) };
  }

  /** What is done to a request that is sent now. */
  harmOf(request: ModelRequest): ReturnType<Interference> {
    for (const interference of this.#interferences) {
      const harm = interference(request.user, request);
      if (harm !== undefined) return harm;
    }
    return undefined;
  }

  #fateOf(user: string): Random {
    let random = this.#fates.get(user);
    if (random === undefined) this.#fates.set(user, (random = this.#options.streams(`fate of ${user}`)));
    return random;
  }

  #peerFor(random: Random, server: string, pinned: Peer | undefined): Peer | undefined {
    const { access } = this.#options;
    if (server !== BALANCER_URL) {
      const node = this.#nodes.find(({ url }) => url === server);
      // From outside of the cluster nothing listens at the addresses of single API servers.
      return access === "each" && node?.isListening === true ? node : undefined;
    }
    if (pinned?.isListening === true) return pinned;
    const alive = this.nodes;
    return alive.length === 0 ? undefined : oneOf(random, alive);
  }

  /** What the API servers write themselves: the addresses of those that live. */
  #writeEndpoints(): void {
    const found = this.etcd.get(SLICE_KEY);
    const working = this.nodes.filter(({ isLeaving, process }) => !isLeaving && !process.isPaused);
    // While none works, nobody writes it.
    if (working.length === 0 && found !== undefined) return;
    const endpoints = working.map(({ url }) => ({
      addresses: [new URL(url).hostname],
      conditions: { ready: true },
    }));
    const metadata = found?.object.metadata ?? {
      name: "kubernetes",
      namespace: "default",
      uid: this.etcd.nextId(),
      labels: { "kubernetes.io/service-name": "kubernetes" },
    };
    const ports = [{ name: "https", port: 6_443, protocol: "TCP" }];
    const object = {
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata,
      addressType: "IPv4",
      endpoints,
      ports,
    };
    this.etcd.put(SLICE_KEY, { object }, found?.modRevision ?? 0);
  }
}

function urlOf(slot: number): string {
  return `https://10.0.0.${slot + 1}:6443`;
}

/** What a balancer, a proxy or an overloaded API server says. */
function answerOf({ body = {}, headers, html = false, status, text }: FalseAnswer): {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
} {
  if (html) {
    return { status, headers: { "content-type": "text/html", ...headers }, body: `<html><h1>${status}</h1></html>` };
  }
  const json = { status, headers: { "content-type": "application/json", ...headers } };
  if (text !== undefined) return { ...json, body: text };
  const said = {
    kind: "Status",
    apiVersion: "v1",
    metadata: {},
    status: "Failure",
    code: status,
    message: "",
    ...body,
  };
  return { ...json, body: JSON.stringify(said) };
}
