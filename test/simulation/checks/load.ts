import type { World } from "../world/world.ts";

/** Requests of a process in a minute: a queue of small migrations asks some 3,000 times, and so does a balancer with many API servers. */
const MOST_REQUESTS = 4_500;
/** Times that a process waits for at the same moment: each request, watch and pause has one or two. */
const MOST_TIMERS = 300;
const MINUTE_MS = 60_000;
/** Questions that were asked side by side may go on for so long where the answer to one of them ended a run, in milliseconds. */
const LAST_MS = 120_000;

/** What a process asks stays within bounds all the time, and one that ended sends nothing and waits for nothing. */
export function checkLoad(world: World): () => Promise<void> {
  const counts = new Map<string, { minute: number; count: number }>();
  const endedAt = new Map<string, number>();
  world.onEnd.push(({ process: { name } }, { how }) => {
    if (how !== "crashed") endedAt.set(name, world.schedule.now);
  });
  world.cluster.onRequest(({ method, path, user }) => {
    const minute = Math.floor(world.schedule.now / MINUTE_MS);
    const seen = counts.get(user);
    const { count } = seen?.minute === minute ? seen : { count: 0 };
    counts.set(user, { minute, count: count + 1 });
    if (count === MOST_REQUESTS) world.violate(`load: ${user} sent ${count} requests in a minute`);
    const program = world.programNamed(user);
    const timers = program?.process.timers ?? 0;
    if (timers > MOST_TIMERS) world.violate(`load: ${user} waits for ${timers} times`);
    const endedMs = world.schedule.now - (endedAt.get(user) ?? Number.POSITIVE_INFINITY);
    if (endedMs > LAST_MS) world.violate(`leak: ${user} has ended, and sends ${method} ${path}`);
  });
  return async () => {
    for (const program of world.programs) {
      if (program?.end === undefined || !program.process.isAlive || program.process.timers === 0) continue;
      world.violate(`leak: ${program.process.name} has ended, and waits for ${program.process.timers} times`);
    }
  };
}
