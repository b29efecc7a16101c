import type { Logger } from "pino";
import type { ApiServers } from "../old/apiservers/api-servers.ts";
import type { Clock } from "../clock.ts";
import type { ApiClient } from "../old/kube/client.ts";
import type { Retrier } from "../old/retry/retrier.ts";
import type { KeySource } from "./issue.ts";
import type { ReplicaAddress, ServedBy } from "./replicas.ts";
import type { RotationTiming } from "./rotation-plan.ts";
import type { IssueOptions } from "./rotation-writes.ts";
import type { WaitClock } from "./wait-clock.ts";

/** How long API servers and replicas may take to follow by default, in milliseconds. */
export const DEFAULT_FOLLOW_TIMEOUT_MS = 300_000;

/** What is kept, and how. */
export interface CertificateSettings extends IssueOptions, RotationTiming {
  /** Name of the Secret, in the namespace of the Service. */
  readonly secret: string;
  /** The host by which API servers call in the place of the Service. @default they call the Service */
  readonly calledBy?: string | undefined;
  /** Name of the ValidatingWebhookConfiguration. */
  readonly webhookConfiguration: string;
  /** Milliseconds that API servers and replicas may take to follow, where they are waited for. */
  readonly timeoutMs: number;
  /** Where the replicas listen. @default they are found by the Service's EndpointSlices */
  readonly replicaEndpoints?: readonly ReplicaAddress[] | undefined;
}

/** What of the certificates needs the machine. */
export interface CertificateTools {
  /** @default those of this machine */
  readonly keys?: KeySource | undefined;
  /** Finds out what a replica serves. @default by a TLS handshake */
  readonly servedBy?: ServedBy | undefined;
}

/** What the certificates are kept with. */
export interface EnsureOptions extends CertificateTools {
  readonly settings: CertificateSettings;
  readonly client: ApiClient;
  readonly findApiServers: (signal: AbortSignal) => Promise<ApiServers>;
  readonly clock: Clock;
  readonly retrier: Retrier;
  readonly logger: Logger;
  readonly signal: AbortSignal;
  /** Rotates the CA and the serving certificate even where nothing is due. @default false */
  readonly rotateNow?: boolean;
  /** Waits where a step has to, and goes on; else it ends there and the next call goes on. @default false */
  readonly wait?: boolean;
  /** For a process that comes back to a rotation: remembers the waits that it began. @default one for this call */
  readonly waits?: WaitClock;
  /** Told of every step that was taken. */
  readonly onStep?: (text: string) => void;
}

/** How far the certificates are. Times are milliseconds since the Unix epoch, `now` when that was so: by the same clock as the others. */
export type EnsureResult = { readonly now: number } & (
  | { readonly state: "current"; readonly nextRenewal: number }
  | { readonly state: "waiting"; readonly reason: string; readonly until: number }
);
