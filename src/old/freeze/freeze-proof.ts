import type { CustomResourceDefinition } from "../../api/crd.ts";
import { CRD_FIELD_MANAGER } from "../../api/names.ts";
import { hasFreezeAnnotation } from "../../api/owner.ts";
import { KsvmError } from "../../errors.ts";
import type { ApiClient } from "../kube/client.ts";
import { ApiError } from "../kube/errors.ts";
import { ACCEPT_METADATA, CRDS, JSON_PATCH } from "../kube/resources.ts";
import { type Check, type CheckFailure, checkFailureOf } from "../apiservers/ask-all.ts";
import { labelChangePatch, storageChangePatch } from "./freeze-probe.ts";
import { freezeLifted } from "./crd-expectation.ts";
import { type GuardedCrd, isDenialBy } from "./guard.ts";

/** The default of `--proof-timeout`, in milliseconds. */
export const DEFAULT_PROOF_TIMEOUT_MS = 30_000;

/** What one attempt at a proof showed on one API server. */
export type ProofResult =
  | { readonly proven: true }
  /** `unfrozen`: the CRD does not carry the annotation. A read is never stale, so no API server gets there later. */
  | ({ readonly proven: false; readonly unfrozen?: true } & CheckFailure);

/** What is proven. */
export interface ProofOptions extends GuardedCrd {
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
  const { signal } = options;
  let hasAnswered = false;
  try {
    const crd = await client.get<CustomResourceDefinition>(CRDS, { name: options.crdName }, { signal });
    hasAnswered = true;
    if (!hasFreezeAnnotation(crd)) {
      return { proven: false, unfrozen: true, reason: "the CRD is not frozen", silent: false };
    }
    const storageChange = await storageChangeResult(client, crd, options);
    return storageChange.proven ? await labelChangeResult(client, crd, signal) : storageChange;
  } catch (error) {
    const failure = checkFailureOf(error, signal);
    if (failure.silent && hasAnswered && (await doesAnswer(client, signal))) {
      const reason = `${failure.reason}; it answers other requests, so an admission webhook may hang`;
      return { ...failure, proven: false, lives: true, reason };
    }
    return { ...failure, proven: false };
  }
}

/** Whether an API server answers what no admission webhook takes part in. */
async function doesAnswer({ transport }: ApiClient, signal: AbortSignal): Promise<boolean> {
  try {
    await transport.request({ method: "GET", path: "/version", signal });
    return true;
  } catch {
    signal.throwIfAborted();
    return false;
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

/**
 * An API server gives up on a write after 34 s and says so: a longer silence of a dry-run is its own, and no webhook's.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/endpoints/handlers/rest.go
 */
const DRY_RUN_TIMEOUT_MS = 40_000;

function dryRun(
  client: ApiClient,
  crd: CustomResourceDefinition,
  body: unknown,
  signal: AbortSignal,
): Promise<unknown> {
  const patch = { type: JSON_PATCH, body };
  const options = { dryRun: true, fieldManager: CRD_FIELD_MANAGER, accept: ACCEPT_METADATA, signal };
  return client.patch(CRDS, { name: crd.metadata.name }, patch, { ...options, timeoutMs: DRY_RUN_TIMEOUT_MS });
}
