import type { CustomResourceDefinition } from "../../api/crd.ts";
import { MIGRATING_ANNOTATION } from "../../api/names.ts";
import { type FreezeOwner, isSameRun } from "../../api/owner.ts";
import type { CallContext } from "../retry/call-context.ts";
import type { Cleanup } from "../retry/cleanup.ts";
import { type Annotations, freeze, type HolderContext, unfreeze } from "./freeze.ts";
import type { GuardedCrd, GuardIdentity } from "./guard.ts";
import { installGuard, removePolicyGuard } from "./guard-install.ts";

/** Whose freeze it is, and of what. */
export interface FreezeHoldOptions extends GuardedCrd {
  readonly owner: FreezeOwner;
  /**
   * Releases the freeze, without the fence of a Lease. A release touches only what names this owner, and every write has
   * uid and resourceVersion as preconditions, so a run that took the Lease over loses nothing. A run that lost its Lease
   * must lift its freeze as well: the run that took over may die before it sweeps.
   */
  readonly releasing: Omit<CallContext, "signal">;
  /** Runs the release, however the attempt ends. It has a time limit of its own. */
  readonly cleanup: Cleanup;
  readonly onLifted: () => void;
  /** What is set with the freeze. */
  readonly besides: Annotations;
  /** What is taken off with it, asked right before that. */
  readonly undone: () => Annotations;
}

/** The freeze of one attempt, with the guard that enforces it: taken once, and released by the cleanup. */
export class FreezeHold {
  readonly #options: FreezeHoldOptions;
  /** The resourceVersion at which an API server may freeze the CRD yet, though no answer said so. */
  #lateFreezeAt: string | undefined;

  constructor(options: FreezeHoldOptions) {
    this.#options = options;
  }

  get owner(): FreezeOwner {
    return this.#options.owner;
  }

  /** What enforces the freeze. */
  get guard(): GuardIdentity {
    return this.#options.guard;
  }

  /**
   * Installs the guard, if it is a policy of the run's own, and freezes the CRD.
   * @param context fenced by the Lease of the run: what was read is not written after the Lease is lost
   * @returns the frozen CRD
   * @throws as {@link installGuard} and {@link freeze}
   */
  async take(context: HolderContext): Promise<CustomResourceDefinition> {
    const { besides, cleanup, crdName, guard, owner } = this.#options;
    if (guard.kind === "policy") {
      cleanup.defer(
        `remove ValidatingAdmissionPolicy "${guard.name}"`,
        "the next run on this CRD removes it; it does nothing while the CRD is not frozen",
        (signal) => this.#removePolicy(signal),
      );
    }
    await installGuard(context, this.#options, owner);
    cleanup.defer(
      `lift the freeze of "${crdName}"`,
      `lift it with: kubectl annotate crd ${crdName} ${MIGRATING_ANNOTATION}-`,
      (signal) => this.lift(signal),
    );
    const onDoubt = (resourceVersion: string): void => {
      this.#lateFreezeAt = resourceVersion;
    };
    const frozen = await freeze(context, crdName, owner, { besides, onDoubt });
    this.#lateFreezeAt = undefined;
    return frozen;
  }

  /**
   * Lifts the freeze, where the CRD has it.
   * @throws as {@link unfreeze}
   */
  async lift(signal: AbortSignal): Promise<void> {
    const { crdName, onLifted, owner, releasing, undone } = this.#options;
    const options = { besides: undone(), lateFreezeAt: this.#lateFreezeAt };
    if (await unfreeze({ ...releasing, signal }, crdName, owner, options)) {
      onLifted();
    }
  }

  async #removePolicy(signal: AbortSignal): Promise<void> {
    const { crdName, owner, releasing } = this.#options;
    const isOwn = (found: FreezeOwner | undefined): boolean => found !== undefined && isSameRun(found, owner);
    await removePolicyGuard({ ...releasing, signal }, crdName, isOwn);
  }
}
