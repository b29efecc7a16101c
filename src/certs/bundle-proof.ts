import type { X509Certificate } from "node:crypto";
import type { Clock } from "../clock.ts";
import { KsvmError } from "../errors.ts";
import { objectIn } from "../old/kube/answered-object.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { objectPath, WEBHOOK_CONFIGURATIONS } from "../old/kube/resources.ts";
import type { ApiServers } from "../old/apiservers/api-servers.ts";
import { askAll, type CheckFailure, checkFailureOf } from "../old/apiservers/ask-all.ts";
import { type BundleHolder, publishedBundleOf, trustsAll } from "./ca-bundle.ts";

/** What {@link proveBundleSeen} needs. */
export interface BundleProofOptions {
  readonly findApiServers: (signal: AbortSignal) => Promise<ApiServers>;
  /** Name of the ValidatingWebhookConfiguration. */
  readonly name: string;
  readonly clock: Clock;
  /** Milliseconds that API servers may take. */
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** Samples follow each other this closely, in milliseconds; what a sample may miss is what the dwell time is for. */
const SPREAD_MS = 2_000;

/**
 * Reads the configuration back from every API server until each shows a caBundle that trusts all of `cas`. Each answers
 * from its watch cache (resourceVersion 0), which is what feeds its admission plugin too: an API server that is cut off
 * from etcd shows the old bundle here, where a plain read would fail or go past the cache.
 * @throws {KsvmError} RotationStuck with the API server's name after `timeoutMs`; NotConverged where one cannot be found.
 */
export async function proveBundleSeen(cas: readonly X509Certificate[], options: BundleProofOptions): Promise<void> {
  const { findApiServers, name, clock, timeoutMs, signal } = options;
  const check = async (client: ApiClient): Promise<CheckFailure | undefined> => {
    try {
      const bundle = publishedBundleOf(await readCached(client, name, signal));
      const isSeen = bundle !== undefined && trustsAll(bundle, cas);
      return isSeen ? undefined : { reason: "it does not show the new CA in the caBundle", silent: false };
    } catch (error) {
      return checkFailureOf(error, signal);
    }
  };
  await askAll(await findApiServers(signal), check, {
    clock,
    timeoutMs,
    spreadMs: SPREAD_MS,
    signal,
    errorOf: stuckAt,
  });
}

function stuckAt(server: string, reason: string): KsvmError {
  const text = `Cannot use the new CA yet: ${server}: ${reason}; both CAs stay trusted, run again`;
  return new KsvmError("RotationStuck", text);
}

/** @throws {DoubtfulAnswer} where the answer is not this object: it says nothing about what the API server trusts. */
async function readCached(client: ApiClient, name: string, signal: AbortSignal): Promise<BundleHolder> {
  const path = objectPath(WEBHOOK_CONFIGURATIONS, { name });
  const query = { resourceVersion: "0" };
  const { body } = await client.transport.request<BundleHolder>({ method: "GET", path, query, signal });
  return objectIn(body, { name, path });
}
