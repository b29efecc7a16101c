import { StaleObjects } from "../stale-objects.ts";
import { cpuSecondsOf } from "../process-usage.ts";
import { say } from "../run-script.ts";
import type { CrdShape } from "../../test/integration/crd-fixture.ts";
import type { Cluster } from "../../test/integration/cluster.ts";
import type { Contender } from "./contenders.ts";
import type { Ring } from "./ring.ts";
import { directRoute, type Route } from "./route.ts";

/** One line of a table. */
export type Row = Readonly<Record<string, string | number | boolean | undefined>>;

/** What every part is handed. */
export interface PartContext {
  readonly program: string;
  /** The sources of kube-storage-version-migrator. @default its rows say that they are missing */
  readonly peerSource: string | undefined;
  readonly signal: AbortSignal;
}

/** One measurement of the suite. */
export interface Part {
  readonly name: string;
  readonly title: string;
  /** Whether it is no part of `make bench`. @default false */
  readonly isLong?: boolean;
  /** How to read the table. */
  readonly about: string;
  run(context: PartContext): Promise<readonly Row[]>;
}

/** Stale objects, over which one contender goes after the other. */
export class Arena {
  readonly cluster: Cluster;
  readonly stale: StaleObjects;
  readonly #count: number;
  readonly #context: PartContext;

  private constructor(cluster: Cluster, stale: StaleObjects, count: number, context: PartContext) {
    this.cluster = cluster;
    this.stale = stale;
    this.#count = count;
    this.#context = context;
  }

  /** @param shape of the CRD, besides its versions */
  static async create(
    cluster: Cluster,
    count: number,
    context: PartContext,
    shape: Partial<CrdShape> = {},
  ): Promise<Arena> {
    say(`creating ${count} objects`);
    return new Arena(
      cluster,
      await StaleObjects.create(cluster, { objects: count, size: 2_000, shape }),
      count,
      context,
    );
  }

  /** What a contender is handed. */
  ring(route: Route = directRoute(this.cluster)): Ring {
    const { program, signal } = this.#context;
    return { cluster: this.cluster, stale: this.stale, route, program, signal };
  }

  /** Makes all objects stale, lets the contender rewrite them, and looks into etcd whether it did. */
  async measure(contender: Contender, route?: Route): Promise<Row> {
    const { signal } = this.#context;
    await this.stale.renew(signal);
    const pid = this.cluster.controlPlane.apiservers[0]?.pid;
    const [cpuBefore, startedAt] = [cpuSecondsOf(pid), performance.now()];
    const { seconds, settleSeconds = 0, own } = await contender.run(this.ring(route));
    const apiserverCpu = (cpuSecondsOf(pid) - cpuBefore) / ((performance.now() - startedAt) / 1_000);
    const pruned = await this.stale.verify();
    const row = {
      name: contender.name,
      seconds: rounded(seconds, 1),
      "objects/s": Math.round(this.#count / (seconds - settleSeconds)),
      "settle s": settleSeconds === 0 ? undefined : rounded(settleSeconds, 1),
      "API server cores": rounded(apiserverCpu, 2),
      "own CPU ms/object": own === undefined ? undefined : rounded((own.cpuSeconds * 1_000) / this.#count, 2),
      "peak MiB": own === undefined ? undefined : Math.round(own.peakMegabytes),
      pruned,
    };
    say(`${row.name}: ${row["objects/s"]} objects/s in ${row.seconds} s`);
    return row;
  }
}

/** A number with so many digits after the point. */
export function rounded(value: number, digits: number): number {
  return Number(value.toFixed(digits));
}
