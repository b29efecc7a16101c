import type { Clock } from "../clock.ts";
import type { ApiClient } from "../kube/client.ts";
import type { Waker } from "../retry/waker.ts";
import { SecretLosses } from "./secret-losses.ts";
import { isOlder, RESYNC_MS } from "./secret-source.ts";
import { readSecret, type SecretRef } from "./secret-store.ts";

/** What {@link lookForLoss} needs. */
export interface SecretLookoutOptions {
  readonly client: ApiClient;
  readonly clock: Pick<Clock, "now" | "sleep">;
  /** The Secret of `ksvm certs`. */
  readonly ref: SecretRef;
  /** The DNS name or IP address by which API servers call. */
  readonly serverName: string;
  /** Woken where the Secret has lost its certificates, as in {@link SecretLosses}, or is older than it was. */
  readonly lost: Pick<Waker, "wake">;
  readonly signal: AbortSignal;
}

/**
 * Looks every half a minute, until the signal is aborted, whether the Secret has lost its certificates: for a process that keeps them
 * and does not serve them, and so follows the Secret in no other way. A read that fails shows nothing: what keeps the certificates says so.
 */
export async function lookForLoss({
  client,
  clock,
  lost,
  ref,
  serverName,
  signal,
}: SecretLookoutOptions): Promise<void> {
  const losses = new SecretLosses(serverName);
  let before: string | undefined;
  while (!signal.aborted) {
    await clock.sleep(RESYNC_MS, signal).catch(() => undefined);
    const read = await readSecret(client, ref, signal).catch(() => undefined);
    if (read === undefined) continue;
    const { secret, serverTime = clock.now() } = read;
    if (losses.isLost(secret, serverTime) || (secret !== undefined && isOlder(secret, before))) {
      lost.wake();
    }
    before = secret?.metadata.resourceVersion ?? before;
  }
}
