import type { ObjectMeta } from "../api/meta.ts";
import { KsvmError, messageOf } from "../errors.ts";
import { failedWebhookOf } from "../kube/failure.ts";

/** Ends an attempt, not the run: what it rested on cannot be vouched for any more, so the run begins again at step 1. */
export class StartAgain extends KsvmError {
  override readonly name = "StartAgain";
}

/**
 * Ends an attempt that got no further for too long, mostly because of somebody else's webhook: its freeze is lifted, so
 * that it never blocks the very upgrade that would mend it, and the run begins again at step 1 when it can go on.
 */
export class WaitingForOthers extends KsvmError {
  override readonly name = "WaitingForOthers";
  /** The webhook that does not answer, as the API server names it; `undefined` where something else fails. */
  readonly webhook: string | undefined;
  /** Milliseconds that may still be waited. */
  readonly budgetMs: number;
  #object: ObjectMeta | undefined;

  constructor(cause: unknown, budgetMs: number) {
    super("RetryBudgetExceeded", `Cannot go on: ${messageOf(cause)}`, { cause });
    this.webhook = failedWebhookOf(cause);
    this.budgetMs = budgetMs;
  }

  /** The object whose write got stuck, where it was a write. */
  get object(): ObjectMeta | undefined {
    return this.#object;
  }

  /** Says which object's write got stuck. */
  about(object: ObjectMeta): this {
    this.#object = object;
    return this;
  }
}
