import type { CrdRegistry } from "./crd-registry.ts";
import type { Encryption } from "./encryption-configuration.ts";
import type { Release } from "./resource-table.ts";
import type { SimEtcd } from "./etcd.ts";
import type { Timeline } from "./timeline.ts";
import type { ModelIo, ServerClock } from "./types.ts";
import type { AdmissionRegistry } from "./admission-registry.ts";

/** The watch cache of an API server: an older state of etcd. */
export interface WatchCacheState {
  readonly timeline: Timeline;
  /** What it has followed up to. */
  readonly revision: number;
  /** What it began with, or still has: who watches from before it gets 410. */
  readonly since: number;
}

/** What the parts of one API server share. */
export interface ServerContext {
  readonly etcd: SimEtcd;
  readonly io: ModelIo;
  readonly clock: ServerClock;
  readonly release: Release;
  readonly encryption: Encryption;
  readonly handlers: CrdRegistry;
  readonly discovery: CrdRegistry;
  readonly admission: AdmissionRegistry;
  readonly cache: WatchCacheState;
  /** What its watch of CRDs has followed up to. */
  readonly crdsSeen: number;
  /** Whether its watch cache of CRDs is filled: where it is not, etcd answers a GET, whatever its resourceVersion, and a list by name or a watch gets 429. */
  readonly areCrdsFilled: boolean;
  /** The CRDs whose watch cache is not filled: their lists and watches get 429. */
  readonly initializing: ReadonlySet<string>;
}

/** `metav1.Time`. */
export function timeText(now: number): string {
  const second = Math.floor(now / 1_000);
  if (second !== lastSecond) {
    [lastSecond, lastText] = [second, `${new Date(second * 1_000).toISOString().slice(0, 19)}Z`];
  }
  return lastText;
}

let [lastSecond, lastText] = [Number.NaN, ""];

/** `metav1.MicroTime`. */
export function microTimeText(now: number): string {
  return new Date(now).toISOString().replace("Z", "000Z");
}
