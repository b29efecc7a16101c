import type { Test } from "tap";
import { CONTROLLER_LEASE, SYSTEM_NAMESPACE } from "../../src/api/migration.ts";
import { LEASES } from "../api-client.ts";
import type { Lease } from "../lease.ts";
import { type Cluster, eventually } from "../integration/cluster.ts";
import { freePort, type Replica, spawnController } from "../processes/replica.ts";
import { WebhookService } from "../integration/controller.ts";

/** How the replicas of a {@link ReplicaSet} are started. */
export interface ReplicaSetOptions {
  /** What they talk to. */
  readonly kubeconfig: string;
  readonly replicas: number;
  readonly flags: readonly string[];
}

/** What a Deployment and a kubelet are to the replicas: one that ends is followed by another. They end with the test. */
export class ReplicaSet {
  /** How often one ended by itself, each with the end of its log. */
  readonly crashes: string[] = [];
  readonly #cluster: Cluster;
  readonly #options: ReplicaSetOptions;
  readonly #service: WebhookService;
  readonly #replicas = new Set<Replica>();
  readonly #dead: string[] = [];
  readonly #killed = new Set<Replica>();
  readonly #teardowns: (() => unknown)[] = [];
  #isOver = false;

  private constructor(cluster: Cluster, service: WebhookService, options: ReplicaSetOptions) {
    this.#cluster = cluster;
    this.#service = service;
    this.#options = options;
  }

  static async start(t: Test, cluster: Cluster, options: ReplicaSetOptions): Promise<ReplicaSet> {
    const set = new ReplicaSet(cluster, await WebhookService.start(t), options);
    t.teardown(() => set.#end());
    await Promise.all(Array.from({ length: options.replicas }, () => set.#spawn()));
    return set;
  }

  /** Those that run now, paused or not. */
  get replicas(): readonly Replica[] {
    return [...this.#replicas];
  }

  /** The identities of those that ended, as far as they ever led. */
  get deadIdentities(): readonly string[] {
    return this.#dead;
  }

  /** The one that holds the Lease of the leader; `undefined` where that has just ended. */
  async leader(): Promise<Replica | undefined> {
    const ref = { namespace: SYSTEM_NAMESPACE, name: CONTROLLER_LEASE };
    const lease = await this.#cluster.api.find<Lease>(LEASES, ref);
    const holder = lease?.spec?.holderIdentity ?? "";
    return this.replicas.find((replica) => holder !== "" && replica.identity() === holder);
  }

  /** Ends one at once, as the kernel does where memory is short. Another one starts. */
  async kill(replica: Replica): Promise<void> {
    this.#killed.add(replica);
    replica.kill("SIGKILL");
    await replica.ended;
  }

  /** Waits until all are ready. */
  async untilReady(timeoutMs: number): Promise<void> {
    const areReady = async (): Promise<boolean> => {
      const answers = await Promise.all(this.replicas.map((replica) => replica.health("/readyz")));
      return answers.length === this.#options.replicas && answers.every(({ status }) => status === 200);
    };
    await eventually(areReady, "every replica is ready", timeoutMs, 200).catch((error: unknown) => {
      throw new Error(this.replicas.map((replica) => replica.log().slice(-2_000)).join("\n\n"), { cause: error });
    });
  }

  async #spawn(): Promise<void> {
    const { kubeconfig, flags } = this.#options;
    const listenPort = await freePort();
    if (this.#isOver) return;
    const options = { webhookPort: this.#service.port, listenPort, flags };
    const teardown = (end: () => unknown): void => void this.#teardowns.push(end);
    const replica = await spawnController({ teardown }, { kubeconfig }, options);
    this.#replicas.add(replica);
    this.#service.add(Number(replica.healthAddress.split(":")[1]), listenPort);
    void replica.ended.then(() => this.#onEnd(replica));
  }

  async #end(): Promise<void> {
    // First, so that none is followed by another.
    this.#isOver = true;
    await Promise.all(this.#teardowns.map((end) => end()));
  }

  async #onEnd(replica: Replica): Promise<void> {
    this.#replicas.delete(replica);
    this.#dead.push(replica.identity());
    if (this.#isOver) return;
    if (!this.#killed.has(replica)) this.crashes.push(replica.log().slice(-2_000));
    await this.#spawn();
  }
}
