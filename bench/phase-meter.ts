import { setTimeout as delay } from "node:timers/promises";

import type { Cluster } from "../test/integration/cluster.ts";
import { type Replica, untilReady } from "../test/processes/replica.ts";
import { cpuSecondsOf, peakMegabytesOf } from "./process-usage.ts";
import { say } from "./run-script.ts";
import { ScrapedMetrics } from "./scraped-metrics.ts";

/** One phase of the controller's life, measured. */
export interface Phase {
  readonly phase: string;
  readonly seconds: number;
  readonly cpuSeconds: number;
  /** Writes of migrations and CRDs, by whomever: what the controller is told of. */
  readonly events: number;
  readonly peakMib: number;
  /** Milliseconds, with the 10 ms between two samples. */
  readonly delayMs: { readonly p50: number; readonly p99: number; readonly max: number };
  /** By verb, of the controller alone. */
  readonly requestsPerSecond: Readonly<Record<string, number>>;
  /** Migrations that ended. */
  readonly ended: number;
}

const LOOK_EVERY_MS = 5_000;
const QUIET_PER_SECOND = 8;
const REQUESTS = "ksvm_request_duration_seconds_count";
const STATES = "ksvm_migrations";
const WATCHED = new Set(["storageversionmigrations", "customresourcedefinitions"]);
const WRITES = new Set(["POST", "PUT", "PATCH", "DELETE"]);

/** Measures what the process of a controller does in phases of its life. */
export class PhaseMeter {
  readonly #cluster: Cluster;
  readonly #replica: Replica;
  #delayMs: Phase["delayMs"] = { p50: 0, p99: 0, max: 0 };

  constructor(cluster: Cluster, replica: Replica) {
    this.#cluster = cluster;
    this.#replica = replica;
  }

  /** Measures while `work` goes on. */
  async measure(phase: string, work: () => Promise<unknown>): Promise<Phase> {
    say(`measuring: ${phase}`);
    await untilReady(this.#replica);
    const before = await this.#look();
    this.#delayMs = { p50: 0, p99: 0, max: 0 };
    await work();
    const after = await this.#look();
    const seconds = (after.at - before.at) / 1_000;
    const requests = [...after.own.by(REQUESTS, "method")].map(([method, count]) => {
      const made = count - (before.own.by(REQUESTS, "method").get(method) ?? 0);
      return [method, made / seconds] as const;
    });
    return {
      phase,
      seconds,
      cpuSeconds: after.cpu - before.cpu,
      events: eventsIn(after.server) - eventsIn(before.server),
      peakMib: peakMegabytesOf(this.#replica.pid),
      delayMs: this.#delayMs,
      requestsPerSecond: Object.fromEntries(requests),
      ended: endedIn(after.own) - endedIn(before.own),
    };
  }

  /** Waits until the controller knows that many migrations, and sends next to nothing. */
  async untilQuiet(migrations: number, signal: AbortSignal): Promise<void> {
    let last = Number.NEGATIVE_INFINITY;
    for (let quiet = 0; quiet < 2; ) {
      await delay(LOOK_EVERY_MS, undefined, { signal });
      const own = await this.#scrape();
      const sent = own.sum(REQUESTS);
      // A first list that takes long is no quiet.
      const isQuiet = sent - last < (QUIET_PER_SECOND * LOOK_EVERY_MS) / 1_000 && own.sum(STATES) >= migrations;
      quiet = isQuiet ? quiet + 1 : 0;
      last = sent;
    }
  }

  /** The endpoint tells of the delays since it was read last. */
  async #scrape(): Promise<ScrapedMetrics> {
    const own = new ScrapedMetrics((await this.#replica.health("/metrics")).text);
    const worst = (known: number, which: string): number =>
      Math.max(known, own.sum(`nodejs_eventloop_lag_${which}_seconds`) * 1_000);
    const { p50, p99, max } = this.#delayMs;
    this.#delayMs = { p50: worst(p50, "p50"), p99: worst(p99, "p99"), max: worst(max, "max") };
    return own;
  }

  async #look() {
    const own = await this.#scrape();
    const { body } = await this.#cluster.controlPlane.request("/metrics");
    return {
      at: performance.now(),
      cpu: cpuSecondsOf(this.#replica.pid),
      own,
      server: new ScrapedMetrics(String(body)),
    };
  }
}

function eventsIn(server: ScrapedMetrics): number {
  return server.sum(
    "apiserver_request_total",
    ({ resource = "", verb = "", code = "" }) => WATCHED.has(resource) && WRITES.has(verb) && code.startsWith("2"),
  );
}

function endedIn(own: ScrapedMetrics): number {
  return own.sum(STATES, ({ state }) => state === "Succeeded" || state === "Failed");
}
