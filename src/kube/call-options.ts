/** Options of every call. */
export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
}
