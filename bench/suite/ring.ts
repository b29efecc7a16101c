import type { Cluster } from "../../test/integration/cluster.ts";
import type { Usage } from "../run-ksvm.ts";
import type { StaleObjects } from "../stale-objects.ts";
import type { Route } from "./route.ts";

/** What a contender is handed. */
export interface Ring {
  readonly cluster: Cluster;
  readonly stale: StaleObjects;
  readonly route: Route;
  /** ksvm, compiled. */
  readonly program: string;
  readonly signal: AbortSignal;
}

/** What it took. */
export interface Took {
  readonly seconds: number;
  /** Of these, waited for writes that may still be under way: no other contender does that. @default none */
  readonly settleSeconds?: number;
  readonly own?: Usage;
}
