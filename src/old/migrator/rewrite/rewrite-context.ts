import type { CustomResourceDefinition } from "../../../api/crd.ts";
import type { Clock } from "../../../clock.ts";
import type { Resource } from "../../kube/resources.ts";
import type { Transport } from "../../kube/transport.ts";
import type { Pacer } from "../../retry/pacer.ts";
import type { Patience } from "../../retry/patience.ts";
import type { Retrier } from "../../retry/retrier.ts";
import type { noOpWrite } from "./no-op-write.ts";
import type { SeenState } from "./seen-state.ts";

/** What became of one object. */
export type ObjectOutcome = ObjectEnd & {
  /** Why its managedFields go on naming another version, where they were to name the storage version. */
  readonly keptFields?: string;
  /** Whether it was counted before the list began at the first object again, and is not to be counted twice. */
  readonly isCounted?: true;
};

type ObjectEnd =
  /** It was written. `changed` where more than the encoding changed, as far as {@link ListedObject.digest} shows it. */
  | { readonly kind: "migrated"; readonly changed: boolean }
  /** It was stored in the storage version already: the API server wrote nothing. */
  | { readonly kind: "current" }
  /** Another client wrote it after the watermark, in the storage version. */
  | { readonly kind: "newer" }
  /** It does not exist any more. */
  | { readonly kind: "gone" }
  /** It is still stored as it was, and this is why. */
  | { readonly kind: "failed"; readonly reason: string };

/** Hears of reads of objects before the run writes what it read. */
export interface ObjectReads {
  /** The run has read a page. It must not throw. */
  pageRead(): void;
  /** The run has read one object again. @throws what ends the pass */
  objectRead(): Promise<void>;
}

/** What the rewrite of one object needs besides the object. */
export interface RewriteContext {
  readonly transport: Transport;
  readonly clock: Clock;
  readonly retrier: Retrier;
  readonly pacer: Pacer;
  /** Of the whole pass. */
  readonly patience: Patience;
  readonly resource: Resource;
  readonly kind: string;
  readonly watermark: string;
  /** How a write is sent. @default as {@link noOpWrite} */
  readonly write?: typeof noOpWrite;
  /** What the objects are written through. @default the objects themselves */
  readonly subresource?: "status" | undefined;
  /** Hears of each object that the run reads again before it writes it. @default none */
  readonly reads?: ObjectReads | undefined;
  /** Told of what was written. @default nobody asks */
  readonly objectsSeen?: SeenState | undefined;
  /** Where the objects of a CRD are. @default it is no CRD */
  readonly scope?: CustomResourceDefinition["spec"]["scope"] | undefined;
  /** What a user could do about an object whose spec is rejected. @default nothing is known */
  readonly adviceOnRejection?: string | undefined;
  /** Sends the writes as dry-runs: admission and validation speak, nothing is stored. */
  readonly dryRun: boolean;
  /** Aborts requests. */
  readonly signal: AbortSignal;
  /** Aborted with `signal`, and where the pass ends for another object: nothing is waited for then, but what was sent goes on. */
  readonly waitSignal: AbortSignal;
}
