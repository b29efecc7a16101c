import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Test } from "tap";
import { kubeconfigText } from "../control-plane/kubeconfig.ts";
import { balance, type Balancer } from "../integration/balancer.ts";
import type { Cluster } from "../integration/cluster.ts";
import { tokenOf } from "../integration/installation.ts";
import { ChaosProxy } from "./chaos-proxy.ts";
import { answerBy } from "./disturbance.ts";
import { randomFrom } from "./random.ts";

/**
 * What a client reaches the API servers through: a TCP balancer, behind it a proxy before each API server, which answers in
 * its place now and then. A connection stays with its API server.
 */
export class Road {
  /** Of the service account of the installation, which has the rights that deploy/ gives. */
  readonly kubeconfig: string;
  readonly balancer: Balancer;
  /** The share of the requests that something else answers. */
  share = 0;
  readonly #proxies: readonly ChaosProxy[];

  private constructor(parts: Pick<Road, "kubeconfig" | "balancer">, proxies: readonly ChaosProxy[]) {
    this.kubeconfig = parts.kubeconfig;
    this.balancer = parts.balancer;
    this.#proxies = proxies;
  }

  /** Ends with the test. */
  static async build(t: Test, cluster: Cluster, seed: number): Promise<Road> {
    const { controlPlane } = cluster;
    let road: Road | undefined;
    const proxies = await Promise.all(
      controlPlane.apiservers.map((_, apiserver) => {
        const random = randomFrom(seed + apiserver);
        return ChaosProxy.start(t, controlPlane, { apiserver, disturb: () => answerBy(random, road?.share ?? 0) });
      }),
    );
    const urls = proxies.map(({ url }) => url);
    const balancer = await balance(t, controlPlane, urls);
    const user = { name: "storage-migrator", token: await tokenOf(cluster, "storage-migrator") };
    const kubeconfig = join(t.testdir(), "road.kubeconfig");
    const ca = proxies.map((proxy) => proxy.ca).join("\n");
    writeFileSync(kubeconfig, kubeconfigText(balancer.url, ca, user), { mode: 0o600 });
    road = new Road({ kubeconfig, balancer }, proxies);
    return road;
  }

  /** How many requests were answered by what; `none` are those that the API servers answered. */
  get answers(): Readonly<Record<string, number>> {
    const sum: Record<string, number> = {};
    for (const { disturbed } of this.#proxies) {
      for (const [words, count] of Object.entries(disturbed)) sum[words] = (sum[words] ?? 0) + count;
    }
    return sum;
  }

  /** Ends every connection, as where the balancer is restarted: a dead leg is over. */
  restart(): void {
    for (const connection of this.balancer.connections()) connection.reset();
  }
}
