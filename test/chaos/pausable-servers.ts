import { setTimeout as delay } from "node:timers/promises";
import type { Test } from "tap";
import type { ApiserverOptions } from "../control-plane/apiserver.ts";
import type { ControlPlane } from "../control-plane/control-plane.ts";
import type { ManagedProcess } from "../control-plane/managed-process.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { GROUP, type TestKind } from "../integration/crd-fixture.ts";
import { type EtcdRelay, relayToEtcd } from "./etcd-relay.ts";
import { holdCreates } from "./slow-creates.ts";

/** How many writes an API server has under way while it stands still. */
export const HELD_WRITES = 40;
// Without it the writes would land so soon after SIGCONT that no run could be too early.
const HELD_MS = 5_000;

/** How the two API servers start. */
export interface PausableOptions {
  /** In seconds, of a request. */
  readonly requestTimeoutS: number;
  /** What differs for each. @default nothing */
  readonly overrides?: readonly [ApiserverOptions, ApiserverOptions];
}

/**
 * Two API servers of which the second one is stopped, with writes of the old version under way on it. After SIGCONT it
 * learns of a change of the CRD only once some of those writes have begun, as where its watch of etcd lags: which of the two it
 * sees first would be up to the machine otherwise.
 */
export class PausableServers {
  readonly cluster: Cluster;
  readonly #relay: EtcdRelay;
  readonly #calls: () => number;
  #callsBefore = 0;

  private constructor(cluster: Cluster, relay: EtcdRelay, calls: () => number) {
    this.cluster = cluster;
    this.#relay = relay;
    this.#calls = calls;
  }

  /** Starts both, and a webhook that holds creates of objects whose names begin with "held". They end with the test. */
  static async start(t: Test, { requestTimeoutS, overrides }: PausableOptions): Promise<PausableServers> {
    const [first, second] = overrides ?? [{}, {}];
    const cluster = await Cluster.start(t, { overrides: [first], requestTimeout: `${requestTimeoutS}s` });
    const relay = await relayToEtcd(t, cluster.controlPlane.etcd.url);
    await cluster.controlPlane.addApiserver({ ...second, etcdUrl: relay.url });
    const slow = await holdCreates(t, cluster.api, { prefix: "held", heldMs: HELD_MS });
    const servers = new PausableServers(cluster, relay, () => slow.calls());
    t.teardown(() => servers.second.resume());
    return servers;
  }

  get #controlPlane(): ControlPlane {
    return this.cluster.controlPlane;
  }

  /** The one that the test talks to. @throws {Error} where there is none */
  get first(): ManagedProcess {
    return apiserverAt(this.#controlPlane, 0);
  }

  /** The one that stands still. @throws {Error} where there is none */
  get second(): ManagedProcess {
    return apiserverAt(this.#controlPlane, 1);
  }

  /**
   * Stops the second one, then sends it creates of the old version. Call it before the storage change.
   * @returns the statuses of those creates, once it goes on and answers: 0 for one that it does not answer in time
   */
  async pauseWithWrites(kind: TestKind): Promise<{ readonly statuses: Promise<readonly number[]> }> {
    await eventually(async () => {
      const before = this.#calls();
      await this.#create(kind, kind.object("held-canary", "v1alpha1"), "?dryRun=All");
      return this.#calls() > before;
    }, "the second API server calls the slow webhook");
    this.#relay.hold();
    this.second.pause();
    this.#callsBefore = this.#calls();
    const writes = kind.objects(HELD_WRITES, "v1alpha1", "held").map((body) => this.#create(kind, body));
    await delay(500);
    return { statuses: Promise.all(writes) };
  }

  /** Lets the second one go on: at least one of its writes begins before it learns of what changed, on a quiet machine all. */
  async resume(): Promise<void> {
    this.second.resume();
    const begun = (): number => this.#calls() - this.#callsBefore;
    try {
      await eventually(async () => begun() > 0, "a write that was held has begun");
      // On a busy machine some of them time out before; those that have begun are held for longer than this.
      for (let tries = 0; begun() < HELD_WRITES && tries < 15; tries++) await delay(200);
    } finally {
      this.#relay.letGo();
    }
  }

  /** How many of those writes landed in the old version, whatever a run rewrote since. */
  async lateWrites(kind: TestKind): Promise<number> {
    const created = await this.#controlPlane.stored.createdObjects(GROUP, kind.plural, "held");
    return created.filter(({ apiVersion }) => apiVersion.endsWith("/v1alpha1")).length;
  }

  async #create(kind: TestKind, body: object, query = ""): Promise<number> {
    const path = `/apis/${GROUP}/v1alpha1/namespaces/default/${kind.plural}${query}`;
    const request = { method: "POST", body, apiserver: 1, timeoutMs: 120_000 } as const;
    const answer = await this.#controlPlane.request(path, request).catch(() => undefined);
    return answer?.status ?? 0;
  }
}

function apiserverAt({ apiservers }: ControlPlane, index: number): ManagedProcess {
  const apiserver = apiservers[index];
  if (apiserver === undefined) throw new Error(`There is no API server ${index}`);
  return apiserver;
}
