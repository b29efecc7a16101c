import { Client } from "../../../src/kube/client.ts";
import type { Random } from "../../chaos/random.ts";
import type { ModelAnswer, ModelRequest, WebhookAnswer } from "../model/answers.ts";
import { configHashOf, type Encryption } from "../model/context.ts";
import { SimEtcd } from "../model/etcd.ts";
import type { DenyRule } from "../model/request-handler.ts";
import { ApiServerNode, type ServerBuild } from "./api-server.ts";
import { type Edge, type Fate, Network, type Peer } from "./network.ts";
import type { SimProcess, StandSort } from "./process.ts";
import { oneOf, spread, type Streams } from "./random.ts";
import type { Schedule } from "./schedule.ts";

/** The address that all API servers share. */
const BALANCER_URL = "https://balancer.sim:6443";
const SLICE_KEY = "/registry/endpointslices/default/kubernetes";
/** Others take the address of an API server out of the EndpointSlice so long after it crashed. */
const ENDPOINT_TTL_MS = 15_000;
/** Control planes have no more. */
const MOST_SERVERS = 5;

/** What a {@link SimCluster} is made of. */
interface SimClusterOptions {
  readonly schedule: Schedule;
  readonly streams: Streams;
  readonly servers: number;
  /** Whether each API server can be reached by its own address. */
  readonly access: "each" | "sampled";
  /** How all API servers are started at first. */
  readonly build: ServerBuild;
  readonly edge: Edge;
}

/** What is done to requests of ksvm on their way: lost, reset, or answered by something between; `undefined` lets one pass. */
type Interference = (request: ModelRequest) => "lost" | "reset" | FalseAnswer | undefined;

/** The Status that comes in the place of an API server's answer. */
export interface FalseAnswer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** Fields of the Status. */
  readonly body?: object;
}

/** A webhook: what it answers to a body. */
export type SimWebhook = (body: string) => Promise<WebhookAnswer>;

/** A cluster: one etcd, API servers that come and go, a balancer before them, webhooks. */
export class SimCluster {
  readonly etcd = new SimEtcd();
  readonly webhooks = new Map<string, SimWebhook>();
  /** How the API server in each slot is started from now on. */
  readonly builds = new Map<number, ServerBuild>();
  /** Told of each request of a client, before it is sent. @returns how long it is held on its way, in milliseconds */
  onSend: (request: ModelRequest) => number = () => 0;
  /** How many requests came from clients. */
  requests = 0;
  readonly #options: SimClusterOptions;
  readonly #network: Network;
  readonly #nodes: ApiServerNode[] = [];
  /** The slots of API servers that left for good. */
  readonly #gone = new Set<number>();
  /** What is done to requests now, the earliest first. */
  readonly #interferences = new Set<Interference>();
  /** By the digests of the configurations that API servers had. */
  readonly #keys = new Map<string, number>();
  readonly #onRequest: ((request: ModelRequest, server: string, fate: Fate) => void)[] = [];
  readonly #onAnswer: ((request: ModelRequest, answer: ModelAnswer) => void)[] = [];
  /** By users: what decides which API server a request meets, and what becomes of it. */
  readonly #fates = new Map<string, Random>();
  #denied: readonly DenyRule[] = [];

  constructor(options: SimClusterOptions) {
    this.#options = options;
    const { build, edge, schedule, servers, streams } = options;
    this.#network = new Network({
      schedule,
      edge,
      latencyOf: (process) => {
        const random = streams(`way of ${process}`);
        return () => spread(random, 0.2, 5);
      },
      route: (request, server, pinned) => {
        const holdMs = this.onSend(request);
        const fate = { ...this.#route(request, server, pinned), holdMs };
        for (const told of this.#onRequest) told(request, server, fate);
        return fate;
      },
      onAnswer: (request, answer) => {
        for (const told of this.#onAnswer) told(request, answer);
      },
    });
    for (let slot = 0; slot < MOST_SERVERS; slot++) this.builds.set(slot, build);
    for (let slot = 0; slot < servers; slot++) this.join();
  }

  /** A client of a process, whose user is its name. */
  clientOf(process: SimProcess): Client {
    const { access, streams } = this.#options;
    const address = access === "each" ? urlOf(0) : BALANCER_URL;
    const random = streams(`chance of ${process.name}`);
    return new Client({ address, send: this.#network.sendOf(process), clock: process.clock, random });
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

  /** Has `told` hear of each answer that a client gets. */
  onAnswer(told: (request: ModelRequest, answer: ModelAnswer) => void): void {
    this.#onAnswer.push(told);
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

  /** The one in a slot; `undefined` while there is none that stays. */
  nodeAt(slot: number): ApiServerNode | undefined {
    const node = this.#nodes[slot];
    return node?.isListening === true ? node : undefined;
  }

  /** An API server joins on a host of its own, as long as there may be more. @returns it, where it joined */
  join(): ApiServerNode | undefined {
    const slot = this.#nodes.length;
    return slot >= MOST_SERVERS ? undefined : this.#start(slot);
  }

  /**
   * Ends an API server in order: it takes its identity Lease and its address with it.
   * @param backMs when it starts again. @default it is gone for good
   */
  leave(slot: number, backMs?: number): void {
    const node = this.#nodes[slot];
    if (node === undefined || node.isLeaving) return;
    if (backMs === undefined) this.#gone.add(slot);
    else node.process.onCrash(() => this.#startIn(slot, backMs));
    if (node.process.isAlive && !node.process.isPaused) node.leave();
    else {
      // Of one that is down at the moment, an administrator takes them away.
      node.api.deleteLease();
      node.process.crash();
    }
    this.#writeEndpoints();
  }

  /** Whether the one in a slot left for good. */
  isGone(slot: number): boolean {
    return this.#gone.has(slot);
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

  /** Those that have begun to end do so at once, and all others go on, and follow everything promptly. */
  calm(): void {
    for (const { isLeaving, process } of this.#nodes) if (isLeaving) process.crash();
    for (const node of this.nodes) {
      node.quicken();
      node.followPromptly();
      if (node.process.isPaused) node.process.wake();
    }
    this.#writeEndpoints();
  }

  /** How the API server in a slot is started from now on. */
  buildOf(slot: number): ServerBuild {
    return this.builds.get(slot) ?? this.#options.build;
  }

  /** Gives an API server another encryption configuration, which it has once it is started or reads it. */
  configure(slot: number, encryption: Encryption): void {
    this.builds.set(slot, { ...this.buildOf(slot), encryption });
  }

  /** Has an API server that lives read its configuration again; one that stands still reads it as it is when it goes on. */
  reload(slot: number): void {
    const node = this.nodeAt(slot);
    node?.process.reach(() => {
      const { encryption } = this.buildOf(slot);
      this.#keys.set(configHashOf(encryption), encryption.writes);
      node.api.reload(encryption);
    });
  }

  /** The key that a configuration writes with; `undefined` where no API server ever had it. */
  keyOf(configHash: string): number | undefined {
    return this.#keys.get(configHash);
  }

  /** One that left for good, also while it was down, is not started again. */
  #startIn(slot: number, ms: number): void {
    this.#options.schedule.in(ms, () => {
      if (this.#nodes[slot]?.process.isAlive !== true && !this.#gone.has(slot)) this.#start(slot);
    });
  }

  #start(slot: number): ApiServerNode {
    const build = this.buildOf(slot);
    this.#keys.set(configHashOf(build.encryption), build.encryption.writes);
    const node = new ApiServerNode({
      schedule: this.#options.schedule,
      random: this.#options.streams(`server-${slot}`),
      etcd: this.etcd,
      name: `server-${slot}`,
      url: urlOf(slot),
      build,
      callWebhook: (url, body) => this.#callWebhook(url, body),
    });
    node.api.denied = this.#denied;
    this.#nodes[slot] = node;
    this.#writeEndpoints();
    return node;
  }

  async #callWebhook(url: string, body: string): Promise<WebhookAnswer> {
    const { schedule, streams } = this.#options;
    const random = streams("webhooks");
    await schedule.wait(spread(random, 0.2, 5));
    const webhook = this.webhooks.get(url.split("?")[0] ?? url);
    if (webhook === undefined) return { error: "dial tcp: connect: connection refused" };
    const answer = await webhook(body);
    await schedule.wait(spread(random, 0.2, 5));
    return answer;
  }

  #route(request: ModelRequest, server: string, pinned: Peer | undefined): Fate {
    this.requests++;
    const random = this.#fateOf(request.user);
    const peer = this.#peerFor(random, server, pinned);
    for (const interference of this.#interferences) {
      const harm = interference(request);
      if (harm === undefined) continue;
      if (typeof harm === "object") return { kind: "answered", answer: answerOf(harm) };
      return { kind: harm, peer: random() < 0.5 ? peer : undefined };
    }
    return peer === undefined ? { kind: "reset", peer } : { kind: "delivered", peer };
  }

  #fateOf(user: string): Random {
    let random = this.#fates.get(user);
    if (random === undefined) this.#fates.set(user, (random = this.#options.streams(`fate of ${user}`)));
    return random;
  }

  #peerFor(random: Random, server: string, pinned: Peer | undefined): Peer | undefined {
    if (server !== BALANCER_URL) {
      const node = this.#nodes.find(({ url }) => url === server);
      // From outside of the cluster nothing listens at the addresses of single API servers.
      return this.#options.access === "each" && node?.isListening === true ? node : undefined;
    }
    if (pinned?.isListening === true) return pinned;
    const alive = this.nodes;
    return alive.length === 0 ? undefined : oneOf(random, alive);
  }

  /** What the API servers write themselves: the addresses of those that live. */
  #writeEndpoints(): void {
    const found = this.etcd.get(SLICE_KEY);
    const working = this.nodes.filter(({ process }) => !process.isPaused);
    // While none works, nobody writes it.
    if (working.length === 0 && found !== undefined) return;
    const metadata = found?.object.metadata ?? {
      name: "kubernetes",
      namespace: "default",
      uid: this.etcd.nextId(),
      labels: { "kubernetes.io/service-name": "kubernetes" },
    };
    const object = {
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata,
      addressType: "IPv4",
      endpoints: working.map(({ url }) => ({ addresses: [new URL(url).hostname], conditions: { ready: true } })),
      ports: [{ name: "https", port: 6_443, protocol: "TCP" }],
    };
    this.etcd.put(SLICE_KEY, { object }, found?.modRevision ?? 0);
  }
}

function urlOf(slot: number): string {
  return `https://10.0.0.${slot + 1}:6443`;
}

/** What a balancer or an overloaded API server says. */
function answerOf({ body = {}, headers, status }: FalseAnswer): ModelAnswer & { readonly body: string } {
  const said = {
    kind: "Status",
    apiVersion: "v1",
    metadata: {},
    status: "Failure",
    code: status,
    message: "",
    ...body,
  };
  return { status, headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(said) };
}
