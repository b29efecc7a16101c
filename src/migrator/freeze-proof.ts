import type { CustomResourceDefinition } from "../api/crd.ts";
import { CRD_FIELD_MANAGER } from "../api/names.ts";
import { hasFreezeAnnotation } from "../api/owner.ts";
import { KsvmError } from "../errors.ts";
import type { ApiClient } from "../kube/client.ts";
import { ApiError } from "../kube/errors.ts";
import { ACCEPT_METADATA, CRDS, JSON_PATCH } from "../kube/resources.ts";
import { type Check, type CheckFailure, checkFailureOf } from "./ask-all.ts";
import { labelChangePatch, storageChangePatch } from "./freeze-probe.ts";
import { freezeLifted } from "./crd-expectation.ts";
import { type GuardIdentity, isDenialBy } from "./guard.ts";

/** What one attempt at a proof showed on one API server. */
export type ProofResult =
  | { readonly proven: true }
  /** `unfrozen`: the CRD does not carry the annotation. A read is never stale, so no API server gets there later. */
  | ({ readonly proven: false; readonly unfrozen?: true } & CheckFailure);

/** What is proven. */
export interface ProofOptions {
  readonly crdName: string;
  readonly guard: GuardIdentity;
  readonly signal: AbortSignal;
}

/** A check that an API server has the freeze in force. It throws FreezeLifted where there is none any more. */
export function freezeCheck(options: ProofOptions): Check {
  return async (client) => {
    const result = await proveFreeze(client, options);
    if (result.proven) {
      return undefined;
    }
    if (result.unfrozen === true) {
      throw freezeLifted(options.crdName);
    }
    return result;
  };
}

/** The error for an API server on which the freeze could not be proven in time. */
export function freezeNotProven({ crdName, guard }: ProofOptions, server: string, reason: string): KsvmError {
  return new KsvmError(
    "FreezeNotProven",
    `Cannot prove that the storage version of "${crdName}" is frozen by ${guard.kind} "${guard.name}" on ${server}: ` +
      `${reason}; nothing was pruned`,
  );
}

/**
 * One attempt on one API server, by two dry-runs: a storage change of the frozen CRD must be denied by our guard, a label
 * change must pass. Failed calls prove nothing.
 */
export async function proveFreeze(client: ApiClient, options: ProofOptions): Promise<ProofResult> {
  try {
    const { signal } = options;
    const crd = await client.get<CustomResourceDefinition>(CRDS, { name: options.crdName }, { signal });
    if (!hasFreezeAnnotation(crd)) {
      return { proven: false, unfrozen: true, reason: "the CRD is not frozen", silent: false };
    }
    const storageChange = await storageChangeResult(client, crd, options);
    return storageChange.proven ? await labelChangeResult(client, crd, signal) : storageChange;
  } catch (error) {
    return { proven: false, ...checkFailureOf(error, options.signal) };
  }
}

async function storageChangeResult(
  client: ApiClient,
  crd: CustomResourceDefinition,
  { guard, signal }: ProofOptions,
): Promise<ProofResult> {
  try {
    await dryRun(client, crd, storageChangePatch(crd), signal);
    return { proven: false, reason: "a dry-run of a storage change was accepted", silent: false };
  } catch (error) {
    if (error instanceof ApiError && isDenialBy(guard, crd.metadata.name, error.said)) {
      return { proven: true };
    }
    throw error;
  }
}

async function labelChangeResult(
  client: ApiClient,
  crd: CustomResourceDefinition,
  signal: AbortSignal,
): Promise<ProofResult> {
  await dryRun(client, crd, labelChangePatch(crd), signal);
  return { proven: true };
}

function dryRun(
  client: ApiClient,
  crd: CustomResourceDefinition,
  body: unknown,
  signal: AbortSignal,
): Promise<unknown> {
  const patch = { type: JSON_PATCH, body };
  const options = { dryRun: true, fieldManager: CRD_FIELD_MANAGER, accept: ACCEPT_METADATA, signal };
  return client.patch(CRDS, { name: crd.metadata.name }, patch, options);
}
