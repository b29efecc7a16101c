import { storageVersionHashOf } from "../../api/crd.ts";
import { isNewer } from "../../api/resource-version.ts";
import { KsvmError } from "../../errors.ts";
import type { ApiClient } from "../kube/client.ts";
import { type ApiResource, resourcesOf } from "../kube/discovery.ts";
import { ApiError } from "../kube/errors.ts";
import { failureKindOf, isTooLargeResourceVersion } from "../kube/failure.ts";
import { type Check, checkFailureOf } from "./ask-all.ts";
import { cachedCrd, NOT_FILLED } from "./cached-crd.ts";
import { pauseAdvice } from "./settle.ts";

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
  /** The CRD once its storage version was frozen. */
  readonly crd: KnownCrd;
}

/**
 * A check that an API server knows the CRD as it is, and shows, in discovery, the storageVersionHash of the storage version.
 * The hash alone is of any state: where the storage version went there and back, one that has yet to see that shows the same.
 * Both are necessary, not enough: for a moment its handler still writes the old version
 * (https://github.com/kubernetes/kubernetes/issues/130235).
 */
export function convergenceCheck(target: ConvergenceTarget, signal: AbortSignal): Check {
  return async (client) => {
    const { crd, group, resource, requestVersion } = target;
    const { transport } = client;
    try {
      const behind = await behindReason(client, crd, signal);
      if (behind !== undefined) {
        return { reason: behind, silent: false };
      }
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

/** A CRD as it was read. */
export interface KnownCrd {
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly generation?: number | undefined;
  /** Up to where the watch of CRDs has to be. @default this CRD */
  readonly notOlderThan?: string | undefined;
}

/** A check that an API server knows the CRD as it was read, and passes another check. */
export function followingCheck(crd: KnownCrd | undefined, check: Check, signal: AbortSignal): Check {
  return async (client) => {
    try {
      const behind = crd && (await behindReason(client, crd, signal));
      return behind === undefined ? await check(client) : { reason: behind, silent: false };
    } catch (error) {
      return checkFailureOf(error, signal);
    }
  };
}

/** Who is told that an API server is behind at the first look, or may be: where it does not say, or the look is broken off. */
export interface FirstLook {
  readonly onLag: () => void;
  /** The look waits for this, and fails with it. Not called where the look is broken off. */
  readonly onDifference: () => Promise<void>;
}

/**
 * A check that asks each API server once which CRD it knows at this moment, and passes whatever that is: one that knows an older one may have written an
 * older version, and by the time that it has to have followed nothing tells that any more. Once that is told of one, no other is asked.
 */
export function knownAtFirst(
  target: ConvergenceTarget,
  { onDifference, onLag }: FirstLook,
  signal: AbortSignal,
): Check {
  const asked = new WeakSet<ApiClient>();
  let isTold = false;
  return async (client) => {
    if (isTold || asked.has(client)) {
      return undefined;
    }
    asked.add(client);
    if (await mayBeBehind(client, target, signal)) {
      isTold = true;
      onLag();
      signal.throwIfAborted();
      await onDifference();
    }
    return undefined;
  };
}

/**
 * Why the watch of CRDs that an API server has is behind; `undefined` where it is not. What it knows of CRDs it has from the watch cache
 * that answers this request. It waits up to 3 s for that, and then refuses.
 *
 * https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list
 */
async function behindReason(
  client: ApiClient,
  { name, resourceVersion, notOlderThan = resourceVersion }: KnownCrd,
  signal: AbortSignal,
): Promise<string | undefined> {
  try {
    const crd = await cachedCrd(client, name, { notOlderThan, signal });
    if (crd === "not filled") {
      return NOT_FILLED;
    }
    if (crd === undefined) {
      // A list that is not older than the CRD shows that it is gone.
      const answer = {
        kind: "Status",
        reason: "NotFound",
        message: `"${name}" was deleted`,
        details: { name },
      } as const;
      throw new ApiError("look for the CRD", 404, { answer });
    }
    const { resourceVersion: shown } = crd.metadata;
    return isNewer(resourceVersion, shown) ? behindAt(resourceVersion, shown) : undefined;
  } catch (error) {
    if (isTooLargeResourceVersion(error)) {
      return behindAt(notOlderThan, /current: (\d+)/.exec(error.said)?.[1], notOlderThan !== resourceVersion);
    }
    throw error;
  }
}

/** Whether an API server has an older CRD than that one, or none, or does not say which it has. */
async function mayBeBehind(client: ApiClient, target: ConvergenceTarget, signal: AbortSignal): Promise<boolean> {
  try {
    return await isBehindNow(client, target, signal);
  } catch (error) {
    if (!signal.aborted && failureKindOf(error) === undefined) {
      throw error;
    }
    return true;
  }
}

/** By what it answers without a wait: its watch cache, and discovery. The freeze changes no `generation`. */
async function isBehindNow(client: ApiClient, target: ConvergenceTarget, signal: AbortSignal): Promise<boolean> {
  const { crd, group, requestVersion, resource } = target;
  const known = await cachedCrd(client, crd.name, { notOlderThan: "0", signal });
  if (known === undefined || known === "not filled") {
    return true;
  }
  const { metadata } = known;
  const isOther = metadata.generation !== crd.generation || metadata.uid !== crd.uid;
  if (isOther && isNewer(crd.resourceVersion, metadata.resourceVersion)) {
    return true;
  }
  const shown = await resourcesOf(client.transport, { group, version: requestVersion }, { signal });
  return (
    lagReason(
      target,
      shown.find(({ name }) => name === resource),
    ) !== undefined
  );
}

function behindAt(resourceVersion: string, shown = "an older one", isOfAll = false): string {
  return `its watch of CRDs is at resourceVersion ${shown}, and ${isOfAll ? "CRDs are" : "the CRD is"} at ${resourceVersion}`;
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

/** The error for an API server that did not follow in time. All times are in milliseconds. */
export function notConverged(
  { group, resource }: ConvergenceTarget,
  { convergenceTimeoutMs, settleMs }: { readonly convergenceTimeoutMs: number; readonly settleMs: number },
  { reason, server }: { readonly server: string; readonly reason: string },
): KsvmError {
  const seconds = Math.round(convergenceTimeoutMs / 1_000);
  const what = `Cannot migrate "${resource}.${group}": ${server} did not follow within ${seconds} s: ${reason}`;
  return new KsvmError("NotConverged", `${what}; once it has followed, ${pauseAdvice(settleMs)}`);
}
