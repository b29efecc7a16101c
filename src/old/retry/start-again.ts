import { KsvmError, messageOf } from "../../errors.ts";
import { failedWebhookOf } from "../kube/failure.ts";
import type { ObjectIdentity } from "../kube/listed-object.ts";

/** The request that an attempt got stuck on, so that a probe can repeat exactly that. */
export type StuckRequest =
  | { readonly kind: "list"; readonly limit: number; readonly continueToken: string | undefined }
  | {
      readonly kind: "write";
      readonly object: ObjectIdentity;
      readonly patchType: string;
      readonly subresource?: "status" | undefined;
    }
  /** A write of the run's own Lease, by the `namespace/name` of it: nothing else is written before one arrives. */
  | { readonly kind: "lease"; readonly lease: string };

/** Ends an attempt, not the run: what it rested on is no longer certain, so the run begins again at step 1. */
export class StartAgain extends KsvmError {
  override readonly name = "StartAgain";
}

/**
 * Ends an attempt that got no further for too long, mostly because of another owner's webhook: its freeze is lifted, so
 * that it never blocks the very upgrade that would repair it, and the run begins again at step 1 when it can continue.
 */
export class WaitingForOthers extends KsvmError {
  override readonly name = "WaitingForOthers";
  /** The webhook that does not answer, as the API server names it; `undefined` where something else fails. */
  readonly webhook: string | undefined;
  /** Milliseconds that may still be waited. */
  readonly budgetMs: number;
  #stuckOn: StuckRequest | undefined;

  constructor(cause: unknown, budgetMs: number, stuckOn?: StuckRequest) {
    const what = stuckOn?.kind === "lease" ? `Lease "${stuckOn.lease}" cannot be renewed: ` : "";
    super("RetryBudgetExceeded", `Cannot continue: ${what}${messageOf(cause)}`, { cause });
    this.webhook = failedWebhookOf(cause);
    this.budgetMs = budgetMs;
    this.#stuckOn = stuckOn;
  }

  /** The request that got stuck; `undefined` where it was neither a page or a write of the rewrite nor one of the Lease. */
  get stuckOn(): StuckRequest | undefined {
    return this.#stuckOn;
  }

  /** Says which request got stuck, unless that is known: a write of an object waits for one of the Lease. */
  about(request: StuckRequest): this {
    this.#stuckOn ??= request;
    return this;
  }
}
