import type { NamedObject } from "../kube/named-object.ts";

/** What retrying and cleaning up have to tell. */
export type RetryEvent =
  /** `object` is the one whose write failed, if it was a write of one. */
  | { readonly type: "retrying"; readonly reason: string; readonly delayMs: number; readonly object?: NamedObject }
  | WarningEvent;

/** What a user should know although the work continues. */
export interface WarningEvent {
  readonly type: "warning";
  readonly message: string;
}
