import { HEARTBEAT_LIMIT_MS } from "../../../src/api/migration.ts";
import type { Encryption } from "../model/encryption-configuration.ts";
import type { Plan } from "../plan.ts";
import { encryptionOf, releaseOf } from "../world/builds.ts";
import { oneIn, oneOf, spread } from "../world/random-choices.ts";
import type { World } from "../world/world.ts";
import { sort } from "./action-sort.ts";
import { hasReencryptions, serverOf } from "./choices.ts";

/**
 * Before an upgrade is undone, in milliseconds, where the trigger looks after built-in resources: between two looks, or until a StorageState is stale,
 * the discovery of a release that came and went shows nothing.
 */
const SEEN_MS = HEARTBEAT_LIMIT_MS + 10_000;

/** The API servers are replaced by those of another release, one by one; `end` says how it ends. */
export const upgrade = sort<{
  readonly everyMs: number;
  readonly downMs: number;
  readonly end: "done" | "undone";
  /** For how long all are of the other release, in milliseconds, before it is undone. @default 0 */
  readonly stayMs?: number;
  readonly ms: number;
}>({
  name: "upgrade",
  weight: 4,
  suits: ({ kinds }) => kinds.some(({ isBuiltIn }) => isBuiltIn === true),
  choose(random, { programs, servers }) {
    const [everyMs, downMs] = [Math.round(spread(random, 100, 120_000)), Math.round(spread(random, 50, 30_000))];
    const end = oneIn(random, 4) ? "undone" : "done";
    const ms = (everyMs + downMs) * servers * (end === "done" ? 1 : 2);
    const isTriggered = end === "undone" && programs.some(({ trigger }) => trigger === "on");
    return { everyMs, downMs, end, ...(isTriggered ? { stayMs: SEEN_MS, ms: ms + SEEN_MS } : { ms }) };
  },
  async play(world, { everyMs, downMs, end, stayMs = 0 }) {
    const { cluster, plan, schedule } = world;
    if (world.isAdministered) return;
    world.isAdministered = true;
    for (const [index, which] of (end === "done" ? (["new"] as const) : thereAndBack(world)).entries()) {
      if (index > 0) await schedule.wait(stayMs === 0 && world.isControlled ? SEEN_MS : stayMs);
      // Between the look of the leader before and that of the next one too little time would pass to tell.
      if (index > 0 && stayMs === 0) world.keepControllersAway(SEEN_MS);
      for (let slot = 0; slot < 5; slot++) {
        const before = cluster.buildOf(slot);
        cluster.builds.set(slot, { ...before, release: releaseOf(plan, which) });
        if (cluster.nodeAt(slot) === undefined) continue;
        world.tell("admin", `replaces API server ${slot} by the ${which} release`);
        cluster.crash(slot, downMs);
        await schedule.wait(downMs + everyMs);
      }
    }
    world.isAdministered = false;
  },
});

/** The release that they are not of, and the one that they are of. */
function thereAndBack({ cluster, plan }: World): readonly ("old" | "new")[] {
  const isNew = cluster.buildOf(0).release === releaseOf(plan, "new");
  return isNew ? ["old", "new"] : ["new", "old"];
}

/**
 * The administrator rotates the key that objects are encrypted with: every API server can read the new one first, then each writes
 * it. Some restart their API servers for it, others have them read the file again.
 */
export const rotateKey = sort<{
  readonly how: "restart" | "reload";
  readonly everyMs: number;
  readonly program: number;
  readonly ms: number;
}>({
  name: "rotateKey",
  weight: 2,
  choose(random, { servers, programs }) {
    const everyMs = Math.round(spread(random, 10, 60_000));
    return {
      how: oneOf(random, ["restart", "reload"]),
      everyMs,
      program: Math.floor(random() * programs.length),
      ms: (everyMs + 2_000) * servers * 2 + 200_000,
    };
  },
  async play(world, { how, everyMs, program }) {
    const { cluster, plan, schedule } = world;
    if (world.isAdministered) return;
    world.isAdministered = true;
    const old = cluster.buildOf(0).encryption.writes;
    const next = old + 1;
    const readable = Array.from({ length: next + 1 }, (_, key) => key);
    for (const encryption of [encryptionOf(plan, old, readable), encryptionOf(plan, next, readable)]) {
      for (let slot = 0; slot < 5; slot++) {
        cluster.configure(slot, encryption);
        if (cluster.nodeAt(slot) === undefined) continue;
        if (how === "restart") cluster.crash(slot, 1_000);
        else cluster.reload(slot);
        await schedule.wait(everyMs + 2_000);
      }
    }
    world.isAdministered = false;
    world.tell("admin", `every API server writes with key ${next}`);
    // The manual says to wait before everything is rewritten.
    await schedule.wait(150_000);
    const { run } = plan.programs[program] ?? {};
    if (!world.isCalm && (run === "migrate" || run === "reencrypt")) world.start(program, { force: true });
  },
});

/** Configurations that are to be undone. */
const switched = new WeakSet<Encryption>();

/** An API server reads a configuration that writes with the key before, and some time later its own again. */
export const switchKey = sort<{ readonly server: number; readonly ms: number }>({
  name: "switchKey",
  weight: 6,
  suits: hasReencryptions,
  choose: (random, limits) => ({ server: serverOf(random, limits), ms: Math.round(spread(random, 20, 100_000)) }),
  play({ cluster, plan, schedule }, { server, ms }) {
    const { encryption: before } = cluster.buildOf(server);
    if (switched.has(before)) return;
    const other = withKeyBefore(plan, before);
    switched.add(other);
    cluster.configure(server, other);
    cluster.reload(server);
    schedule.in(ms, () => {
      // Where the key was rotated since, it has that configuration.
      if (cluster.buildOf(server).encryption !== other) return;
      cluster.configure(server, before);
      cluster.reload(server);
    });
  },
});

/** An API server joins whose configuration writes with the key before, as one of an image that is old, and leaves again. */
export const visit = sort<{ readonly ms: number }>({
  name: "visit",
  weight: 6,
  suits: hasReencryptions,
  choose: (random) => ({ ms: Math.round(spread(random, 50, 60_000)) }),
  play({ cluster, plan, schedule }, { ms }) {
    const slot = cluster.freeSlot;
    if (slot === undefined) return;
    const build = cluster.buildOf(slot);
    cluster.builds.set(slot, { ...build, encryption: withKeyBefore(plan, build.encryption) });
    cluster.join();
    const { shutdownDelayMs } = plan;
    schedule.in(ms, () => cluster.leave(slot, shutdownDelayMs === undefined ? {} : { delayMs: shutdownDelayMs }));
  },
});

function withKeyBefore(plan: Plan, { reads, writes }: Encryption): Encryption {
  return encryptionOf(plan, Math.max(0, writes - 1), [...reads]);
}
