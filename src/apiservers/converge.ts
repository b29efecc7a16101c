import { storageVersionHashOf } from "../api/crd.ts";
import { KsvmError } from "../errors.ts";
import { type ApiResource, resourcesOf } from "../kube/discovery.ts";
import { type Check, checkFailureOf } from "./ask-all.ts";

/** The default of `--convergence-timeout`, in milliseconds. */
export const DEFAULT_CONVERGENCE_TIMEOUT_MS = 300_000;

/** What every API server has to show. */
export interface ConvergenceTarget {
  readonly group: string;
  readonly resource: string;
  readonly kind: string;
  readonly storageVersion: string;
  /** The served version whose discovery document is asked. */
  readonly requestVersion: string;
  /** Whether the storage version is served: an API server shows no hash for one that is not. */
  readonly isStorageServed: boolean;
}

/**
 * A check that an API server shows, in discovery, the storageVersionHash of the storage version. Necessary, not enough:
 * for a moment its handler still writes the old version (https://github.com/kubernetes/kubernetes/issues/130235).
 */
export function convergenceCheck(target: ConvergenceTarget, signal: AbortSignal): Check {
  return async ({ transport }) => {
    const { group, resource, requestVersion } = target;
    try {
      const resources = await resourcesOf(transport, { group, version: requestVersion }, { signal });
      const reason = lagReason(
        target,
        resources.find(({ name }) => name === resource),
      );
      return reason === undefined ? undefined : { reason, silent: false };
    } catch (error) {
      return checkFailureOf(error, signal);
    }
  };
}

/** What an API server shows instead of the storage version; `undefined` where it shows it. */
export function lagReason(target: ConvergenceTarget, found: ApiResource | undefined): string | undefined {
  const { group, resource, kind, storageVersion, requestVersion, isStorageServed } = target;
  if (found === undefined) {
    return `its discovery does not list "${resource}" in version "${requestVersion}"`;
  }
  // https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_discovery_controller.go
  const expected = isStorageServed ? storageVersionHashOf(group, storageVersion, kind) : "";
  const shown = found.storageVersionHash ?? "";
  return shown === expected
    ? undefined
    : `its discovery shows storageVersionHash "${shown}" and "${expected}" is expected for "${storageVersion}"`;
}

/** The error for an API server that did not follow in time. */
export function notConverged(target: ConvergenceTarget, timeoutMs: number, server: string, reason: string): KsvmError {
  const { group, resource } = target;
  const seconds = Math.round(timeoutMs / 1_000);
  return new KsvmError(
    "NotConverged",
    `Cannot migrate "${resource}.${group}": ${server} did not follow within ${seconds} s: ${reason}`,
  );
}
