import { KsvmError } from "../../errors.ts";
import { type GuardChoice, type GuardIdentity, WEBHOOK_GUARD } from "../freeze/guard.ts";
import { isWebhookInstalled, policyGuardOf } from "../freeze/guard-install.ts";
import type { Access } from "../kube/access.ts";
import { isForbidden } from "../kube/failure.ts";
import type { CallContext } from "../retry/call-context.ts";
import { accessForPolicy, missingOf, remedyFor, SEE_THE_WEBHOOK, textOfMissing } from "./access-check.ts";

/** The guard that a run relies on. */
export interface ChosenGuard {
  readonly guard: GuardIdentity;
  /**
   * What the user may not do about guards. Where there is anything, nobody knows whether the webhook is installed, and it is the one guard
   * that is left: the proof of the freeze tells.
   */
  readonly missing: readonly Access[];
}

/**
 * Which guard a run on this CRD relies on. `auto` is the webhook where its configuration is installed, else a policy. Where the user may not
 * see the configuration it is a policy if the user may install one, else the webhook: it needs no right of the user, and a run
 * prunes nothing before the webhook has denied a change of the storage version.
 */
export async function chooseGuard(context: CallContext, crdName: string, choice: GuardChoice): Promise<ChosenGuard> {
  const policy = policyGuardOf(crdName);
  if (choice !== "auto") {
    return { guard: choice === "webhook" ? WEBHOOK_GUARD : policy, missing: [] };
  }
  try {
    return { guard: (await isWebhookInstalled(context)) ? WEBHOOK_GUARD : policy, missing: [] };
  } catch (error) {
    if (!isForbidden(error)) {
      throw error;
    }
    const missing = await missingOf(context, accessForPolicy(policy));
    return missing.length === 0
      ? { guard: policy, missing }
      : { guard: WEBHOOK_GUARD, missing: [SEE_THE_WEBHOOK, ...missing] };
  }
}

/** The guard whose rights are to be named where rights are missing: the webhook where it is known to be installed. */
export async function guardToName(context: CallContext, choice: GuardChoice): Promise<GuardChoice> {
  try {
    return choice === "auto" && (await isWebhookInstalled(context)) ? "webhook" : choice;
  } catch (error) {
    if (isForbidden(error)) {
      return choice;
    }
    throw error;
  }
}

/** What a run that failed is to tell, whose guard was chosen unseen. */
export function explainUnseenGuard(error: unknown, crdName: string, missing: readonly Access[]): unknown {
  if (missing.length === 0 || !(error instanceof KsvmError) || error.code !== "FreezeNotProven") {
    return error;
  }
  const text = `${error.message}; the webhook may not be installed, and ${textOfMissing(missing)}; ${remedyFor(crdName)}`;
  return new KsvmError(error.code, text, { cause: error });
}
