import { reviewBody } from "../../../src/webhook/review.ts";
import { DEFAULT_BODY_LIMIT } from "../../../src/webhook/app.ts";
import { serverNameOf } from "../../../src/certs/service-names.ts";
import type { WebhookAnswer } from "../model/types.ts";
import type { WebhookCaller } from "./api-server-node.ts";
import { oneOf } from "./random-choices.ts";
import type { Random } from "../../chaos/random.ts";
import type { SimCluster } from "./sim-cluster.ts";
import type { SimProcess } from "./sim-process.ts";
import { isTrusted } from "./tls-trust.ts";

/** One replica that serves the webhook. */
export interface ServingReplica {
  readonly process: SimProcess;
  /** Its IP address. */
  readonly host: string;
  /** PEM of the certificate that it serves; `undefined` where it has none yet. */
  readonly certPem: () => string | undefined;
  /** Why no reviews are to be sent to it; `undefined` where they are welcome. */
  readonly ready: () => string | undefined;
}

/** The Service that API servers call the webhook by. */
export interface ServiceName {
  readonly namespace: string;
  readonly service: string;
  /** Of the URL, with its slash. */
  readonly path: string;
}

/** The port that every replica listens on. */
export const REPLICA_PORT = 9_443;
/** What a kubelet's probe takes to notice that a process does not answer any more, in milliseconds. */
const PROBED_AFTER_MS = 30_000;

/** A Service with the replicas of the webhook behind it, each of which answers reviews by the real rule. */
export class WebhookService {
  readonly #cluster: SimCluster;
  readonly #name: ServiceName;
  readonly #random: Random;
  readonly #replicas = new Set<ServingReplica>();

  constructor(cluster: SimCluster, name: ServiceName, random: Random) {
    this.#cluster = cluster;
    this.#name = name;
    this.#random = random;
    cluster.webhooks.set(`https://${serverNameOf(name)}:443${name.path}`, (body, caller) => this.#call(body, caller));
    this.#writeSlice();
  }

  /** Those that live. */
  get replicas(): readonly ServingReplica[] {
    return [...this.#replicas];
  }

  /** The one at an address. */
  at(host: string): ServingReplica | undefined {
    return this.replicas.find((replica) => replica.host === host);
  }

  /** Adds a replica until its process ends. */
  add(replica: ServingReplica): void {
    this.#replicas.add(replica);
    this.#writeSlice();
    replica.process.onCrash(() => {
      this.#replicas.delete(replica);
      this.#writeSlice();
    });
  }

  async #call(body: string, { caBundle = "", now }: WebhookCaller): Promise<WebhookAnswer> {
    const ready = this.replicas.filter((replica) => isRouted(replica));
    if (ready.length === 0) return { error: "no endpoints available for service" };
    const replica = oneOf(this.#random, ready);
    const { process } = replica;
    return new Promise((resolve) => {
      const forget = process.onCrash(() => resolve({ error: "read: connection reset by peer" }));
      process.reach(() => {
        const certPem = replica.certPem();
        const isServed = certPem !== undefined && isTrusted(caBundle, certPem, now);
        const error = "tls: failed to verify certificate: x509: certificate signed by unknown authority";
        resolve(isServed ? answerTo(body) : { error });
        forget();
      });
    });
  }

  /** As the controller of EndpointSlices keeps it: with all pods that run, ready or not. */
  #writeSlice(): void {
    const { namespace, service } = this.#name;
    const { etcd } = this.#cluster;
    const key = `/registry/endpointslices/${namespace}/${service}`;
    const found = etcd.get(key);
    const metadata = found?.object.metadata ?? {
      name: service,
      namespace,
      uid: etcd.nextId(),
      labels: { "kubernetes.io/service-name": service },
    };
    const endpoints = this.replicas.map(({ host }) => ({ addresses: [host], conditions: { serving: true } }));
    const ports = [{ name: "webhook", port: REPLICA_PORT, protocol: "TCP" }];
    const head = { apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", metadata, addressType: "IPv4" };
    etcd.put(key, { object: { ...head, endpoints, ports } }, found?.modRevision ?? 0);
  }
}

/** A probe notices that a process stands still, and that it is not ready, a while after. */
function isRouted({ process, ready }: ServingReplica): boolean {
  return process.isPaused ? process.pausedMs < PROBED_AFTER_MS : ready() === undefined;
}

function answerTo(body: string): WebhookAnswer {
  const bytes = Buffer.from(body);
  const { answer, status } = reviewBody({ bytes, release: () => undefined }, { bodyLimit: DEFAULT_BODY_LIMIT });
  return { status, body: JSON.stringify(answer) };
}
