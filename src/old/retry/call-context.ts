import type { ApiClient } from "../kube/client.ts";
import type { Retrier } from "./retrier.ts";

/** What it takes to call an API server until it answers. */
export interface CallContext {
  readonly client: ApiClient;
  readonly retrier: Retrier;
  readonly signal: AbortSignal;
}
