import type { Counts, NamedObject } from "./rewrite/counts.ts";
import type { GuardIdentity } from "../freeze/guard.ts";

/** What a run tells whoever watches it. */
export type MigrationEvent =
  /** An earlier run holds the Lease; it is being watched to see whether it lives. */
  | { readonly type: "contended"; readonly holder: string }
  | { readonly type: "frozen"; readonly storageVersion: string; readonly guard: GuardIdentity }
  | { readonly type: "proven"; readonly apiServers: readonly string[] }
  | { readonly type: "lagging"; readonly server: string; readonly reason: string }
  | { readonly type: "converged"; readonly apiServers: readonly string[] }
  | { readonly type: "settling"; readonly remainingMs: number }
  /** `counts` are those that it goes on with. */
  | { readonly type: "resumed"; readonly watermark: string; readonly counts: Readonly<Counts> }
  /** The API server refused a continue token: 410 where it expired. Objects that are done are skipped, either way. */
  | { readonly type: "tokenRefused"; readonly status: number; readonly startsOver: boolean }
  | { readonly type: "progress"; readonly counts: Readonly<Counts> }
  /** `object` is the one whose write failed, where it was a write of one. */
  | { readonly type: "retrying"; readonly reason: string; readonly delayMs: number; readonly object?: NamedObject }
  /** No progress for too long: the freeze is lifted until it can go on. */
  | {
      readonly type: "waiting";
      readonly webhook?: string;
      /** An API server that may live is waited for, see docs/errors.md. */
      readonly waitsFor?: "ApiServerMissing";
      readonly reason: string;
      readonly budgetMs: number;
    }
  /** Kubernetes' own migrator is at work on the resource: the run waits, without a freeze, until it has ended. */
  | { readonly type: "yielding"; readonly reason: string }
  /** The run begins again at step 1. */
  | { readonly type: "startingAgain"; readonly reason: string }
  /** `removed` were in storedVersions before. */
  | { readonly type: "pruned"; readonly storedVersions: readonly string[]; readonly removed: readonly string[] }
  | { readonly type: "unfrozen" }
  | { readonly type: "warning"; readonly message: string };

/** Receives the events of a run. It must not throw. */
export type EventSink = (event: MigrationEvent) => void;
