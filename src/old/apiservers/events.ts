/** What API servers may still write the old way: objects in an old version, or also with an old key. */
export type WriteConcern = "version" | "key";

/** What a run tells of the API servers that it asks and waits for. */
export type ApiServerEvent =
  | { readonly type: "proven"; readonly apiServers: readonly string[] }
  | { readonly type: "lagging"; readonly server: string; readonly reason: string }
  | { readonly type: "converged"; readonly apiServers: readonly string[]; readonly concern?: WriteConcern }
  /** Every API server encrypts by the configuration of this digest. */
  | { readonly type: "encryptingAlike"; readonly configuration: string; readonly apiServers: readonly string[] }
  | { readonly type: "settling"; readonly remainingMs: number; readonly concern?: WriteConcern }
  | WaitingEvent;

/** No progress for too long: the freeze is lifted until the run can continue. */
export interface WaitingEvent {
  readonly type: "waiting";
  readonly webhook?: string;
  /** An API server that may live is waited for, see docs/errors.md. */
  readonly waitsFor?: "ApiServerMissing";
  readonly reason: string;
  readonly budgetMs: number;
}
