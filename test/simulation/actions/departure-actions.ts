import type { World } from "../world/world.ts";
import { oneIn, oneOf, spread } from "../world/random-choices.ts";
import { isUnseen } from "../world/unseen-departures.ts";
import { sort } from "./action-sort.ts";
import { serverOf } from "./choices.ts";

/** What is under way when an API server takes its last request may go on for so long, in milliseconds. */
const UNDER_WAY_MS = 60_000;
/** How often, and how many times, it is looked whether everyone has seen one that is to leave. */
const LOOKS = { everyMs: 500, most: 240 };

interface Departure {
  readonly server: number;
  readonly ms: number;
  /** For how long it takes requests. */
  readonly delayMs: number;
  /** When it starts again. @default it is gone for good */
  readonly backMs?: number;
  /** Requests are held for up to that long from now on. */
  readonly holdMs?: number;
}

/** How long it takes until one has ended, and is back, in milliseconds. */
export function departureMs({ backMs = 0, delayMs }: Pick<Departure, "backMs" | "delayMs">): number {
  return delayMs + UNDER_WAY_MS + backMs;
}

/** An API server ends in order: its identity Lease is gone at once, and it takes requests for a while. */
export const leave = sort<Departure>({
  name: "leave",
  weight: 4,
  suits: ({ shutdownDelayMs }) => shutdownDelayMs !== undefined,
  choose(random, limits) {
    const { access, shutdownDelayMs = 0 } = limits;
    const server = serverOf(random, limits);
    const delayMs = Math.round(oneIn(random, 4) ? random() * shutdownDelayMs : shutdownDelayMs);
    // ksvm is told the address of the first one, where each has one.
    const isForGood = oneIn(random, 3) && (server > 0 || access === "sampled");
    const back = isForGood ? {} : { backMs: Math.round(spread(random, 1_000, 60_000)) };
    const held = oneIn(random, 2) ? { holdMs: oneOf(random, [2_000, 20_000, 60_000]) } : {};
    return { server, delayMs, ...back, ...held, ms: departureMs({ delayMs, ...back }) };
  },
  play: (world, departure) => leaveOnceSeen(world, departure, LOOKS.most),
});

function leaveOnceSeen(world: World, departure: Departure, looks: number): void {
  const { cluster, plan, schedule } = world;
  const { backMs, delayMs, holdMs, ms, server } = departure;
  const node = cluster.nodeAt(server);
  const isForGood = backMs === undefined;
  if (world.isCalm || node === undefined || (isForGood && !isAnotherThere(world, server))) return;
  if (node.isLate && isUnseen(world, node)) {
    if (looks > 0) schedule.in(LOOKS.everyMs, () => leaveOnceSeen(world, departure, looks - 1));
    return;
  }
  if (holdMs !== undefined) node.slow(ms, holdMs);
  const { shutdownDelayMs = 0 } = plan;
  cluster.leave(server, { delayMs: Math.min(delayMs, shutdownDelayMs), ...(isForGood ? {} : { backMs }) });
}

/** Whether the cluster keeps one of those that it began with. */
function isAnotherThere({ cluster, plan }: World, server: number): boolean {
  return Array.from({ length: plan.servers }, (_, slot) => slot).some(
    (slot) => slot !== server && !cluster.isGone(slot),
  );
}
