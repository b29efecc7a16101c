import type { Client } from "./client.ts";
import { ApiError, mayPass, whose } from "./errors.ts";

const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5_000;
/** An API server that has just started knows no roles yet. Others refuse for good. */
const RIGHTS_FOR_MS = 10_000;
/** What an API server asks to wait is heeded up to this. */
const LONGEST_RETRY_AFTER_MS = 60_000;

/**
 * Repeats work that fails for a reason that may pass, with growing pauses, and heeds `Retry-After`.
 *
 * @param options `forMs`: milliseconds after which a failure is thrown. @default 30,000
 * @throws the last failure once it has lasted for `forMs`; any other failure at once; the signal's reason.
 */
export async function retry<T>(
  { clock, random }: Pick<Client, "clock" | "random">,
  work: () => Promise<T>,
  { signal, forMs = 30_000 }: { readonly signal: AbortSignal; readonly forMs?: number },
): Promise<T> {
  const start = clock.monotonic();
  for (let attempt = 0; ; attempt++) {
    try {
      return await work();
    } catch (error) {
      signal.throwIfAborted();
      const limitMs = whose(error) === "rights" ? Math.min(forMs, RIGHTS_FOR_MS) : forMs;
      if (!mayPass(error) || clock.monotonic() - start >= limitMs) throw error;
      await clock.sleep(pauseAfter(error, attempt, random()), signal);
    }
  }
}

/** Milliseconds to wait after a failure: from 0.1 to 5 s, or what the API server asks for. */
export function pauseAfter(error: unknown, attempt: number, chance: number): number {
  const asked = error instanceof ApiError ? (error.retryAfter ?? 0) * 1_000 : 0;
  const growing = Math.min(FIRST_PAUSE_MS * 2 ** Math.min(attempt, 10), LONGEST_PAUSE_MS);
  return Math.max(Math.min(asked, LONGEST_RETRY_AFTER_MS), growing * (0.5 + chance / 2));
}
