import type { Counts } from "./counts.ts";

/** What the rewrite of a resource tells. */
export type RewriteEvent =
  /** `counts` are those that it continues with. */
  | { readonly type: "resumed"; readonly watermark: string; readonly counts: Readonly<Counts> }
  /** The API server refused a continue token: 410 if it expired. Objects that are done are skipped, either way. */
  | { readonly type: "tokenRefused"; readonly status: number; readonly startsOver: boolean }
  | { readonly type: "progress"; readonly counts: Readonly<Counts> };
