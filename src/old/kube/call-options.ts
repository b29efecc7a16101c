/** Options of every call. */
export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
}

/** Options of a write. */
export interface WriteOptions extends CallOptions {
  readonly fieldManager?: string;
  /** Runs everything up to the write, admission included, and stores nothing. @default false */
  readonly dryRun?: boolean;
  /** For an apply: takes fields over from other managers instead of failing with a conflict. @default false */
  readonly force?: boolean;
  /** Such as `status`. */
  readonly subresource?: string;
  /** Such as `ACCEPT_METADATA`, where the rest of the answer is of no use. @default the whole object */
  readonly accept?: string;
  /** For a patch, milliseconds for the whole request. @default those of the transport */
  readonly timeoutMs?: number;
}
