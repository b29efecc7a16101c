import type { Logger } from "pino";
import type { Clock } from "../clock.ts";
import type { ApiClient } from "../old/kube/client.ts";
import type { Metrics } from "../observability/metrics.ts";
import type { ControllerSettings } from "./settings.ts";

/** What the parts of a replica share. */
export interface ReplicaOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly settings: ControllerSettings;
  /** Unique to this replica: host name and a random part. */
  readonly identity: string;
}
