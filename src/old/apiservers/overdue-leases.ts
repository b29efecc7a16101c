import { identityLeases, type LiveLease } from "./control-plane-objects.ts";
import { describeLease, isOverdue } from "./missing-api-server.ts";
import type { Clock } from "../../clock.ts";
import type { ApiClient } from "../kube/client.ts";
import type { ApiServerEvent } from "./events.ts";

interface Context {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly emit: (event: ApiServerEvent) => void;
}

const LOOK_EVERY_MS = 15_000;
/** A request may itself end at an API server that hangs, in milliseconds: the next one takes another connection. */
const ANSWER_TIMEOUT_MS = 10_000;
const REPORT_EVERY_MS = 60_000;

/**
 * Says while an attempt runs which API servers have stopped to renew their identity Lease. One that hangs holds up whatever
 * ends at it, for more than a minute each time, and an attempt finds out only where it asks every API server. It reports
 * and no more: what follows from it is for the attempt to decide.
 *
 * @param identities the Leases that count; nothing is looked at where there are none
 * @param ended aborted when the attempt is over
 */
export async function reportOverdue(
  { client, clock, emit }: Context,
  identities: readonly string[],
  ended: AbortSignal,
): Promise<void> {
  const reportedAt = new Map<string, number>();
  let before: ReadonlyMap<string, string | undefined> = new Map();
  while (identities.length > 1 && !ended.aborted) {
    await clock.sleep(LOOK_EVERY_MS, ended).catch(() => undefined);
    const leases = await look({ client, clock }, ended);
    // The clocks of two API servers may differ by more than a renewal takes, so it must not have moved, either.
    const isStill = ({ name, renewTime }: LiveLease): boolean => before.get(name) === renewTime;
    const overdue = leases.filter((one) => identities.includes(one.name) && isOverdue(one) && isStill(one));
    before = leases.length === 0 ? before : new Map(leases.map(({ name, renewTime }) => [name, renewTime]));
    for (const lease of overdue) {
      const since = clock.monotonic() - (reportedAt.get(lease.name) ?? Number.NEGATIVE_INFINITY);
      if (since >= REPORT_EVERY_MS) {
        reportedAt.set(lease.name, clock.monotonic());
        const seconds = Math.round(lease.renewedMsAgo / 1_000);
        const reason = `it has not renewed its identity Lease for ${seconds} s: it may hang, or be gone`;
        emit({ type: "lagging", server: `API server ${describeLease(lease)}`, reason });
      }
    }
  }
}

async function look({ client, clock }: Omit<Context, "emit">, ended: AbortSignal): Promise<readonly LiveLease[]> {
  if (ended.aborted) {
    return [];
  }
  try {
    const within = AbortSignal.any([ended, clock.timeout(ANSWER_TIMEOUT_MS)]);
    return (await identityLeases(client, clock, within)) ?? [];
  } catch {
    // The attempt has the same failures, and says so.
    return [];
  }
}
