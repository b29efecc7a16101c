import { setTimeout as delay } from "node:timers/promises";
import type { Cluster } from "../integration/cluster.ts";
import type { TestKind } from "../integration/crd-fixture.ts";
import { ambush } from "./ambush.ts";
import { between, IS_LONG, pick, type Random, randomFrom } from "./random.ts";
import type { ReplicaSet } from "./replica-set.ts";
import type { Road } from "./road.ts";

/** What was done to the replicas of an installation and to their connections. */
export interface Harm {
  kills: number;
  /** Leaders that were stopped in the moment in which a migration had succeeded. */
  ambushes: number;
  pauses: number;
  hangs: number;
  resets: number;
}

/** What harm is done to, for how long, and by which chance. */
export interface HarmOptions {
  readonly cluster: Cluster;
  /** Whose storage versions may be changed. */
  readonly kinds: readonly TestKind[];
  readonly set: ReplicaSet;
  readonly road: Road;
  readonly seed: number;
  /** Milliseconds. */
  readonly forMs: number;
}

/** Shares of the requests that something else answers, in a storm and between two. */
const STORM = 0.3;
const CALM = 0.02;
/** Shares of the connections that hang, and that are reset, from time to time. */
const HANGS = 0.03;
const RESETS = 0.1;
/** So long a leader is waited for that gets a migration done. */
const AMBUSH_MS = IS_LONG ? 40_000 : 10_000;
/** A leader needs a while to get anywhere, and what it leaves behind is what there is to see. */
const LEAD_MS = [10_000, IS_LONG ? 40_000 : 25_000] as const;

/** Does harm until the time is over. Whatever is paused goes on in the end, and nothing is answered in place of others. */
export async function doHarm({ cluster, kinds, set, road, seed, forMs }: HarmOptions): Promise<Harm> {
  const harm: Harm = { ambushes: 0, kills: 0, pauses: 0, hangs: 0, resets: 0 };
  const deadline = performance.now() + forMs;
  /** @returns whether there is time left after a pause by chance */
  const pause = async (random: Random, [low, high]: readonly [number, number]): Promise<boolean> => {
    await delay(Math.min(Math.max(0, deadline - performance.now()), between(random, low, high)));
    return performance.now() < deadline;
  };
  const storms = async (random: Random): Promise<void> => {
    do road.share = road.share === STORM ? CALM : STORM;
    while (await pause(random, [2_000, 6_000]));
    road.share = 0;
  };
  const wires = async (random: Random): Promise<void> => {
    while (await pause(random, [500, 3_000])) breakSome(road, random, harm);
  };
  const leaders = async (random: Random): Promise<void> => {
    do {
      const caught = await ambush({ cluster, kinds, set, deadline: Math.min(deadline, performance.now() + AMBUSH_MS) });
      harm.ambushes += caught === undefined ? 0 : 1;
      const [first, ...others] = set.replicas;
      const leader = caught ?? (await set.leader()) ?? (first && pick(random, [first, ...others]));
      if (leader !== undefined && random() < 0.5) {
        await set.kill(leader);
        harm.kills++;
      } else if (leader !== undefined) {
        leader.kill("SIGSTOP");
        // The Lease of a leader lasts 15 s: some pauses are shorter, some longer.
        await pause(random, [3_000, 22_000]);
        leader.kill("SIGCONT");
        harm.pauses++;
      }
    } while (await pause(random, LEAD_MS));
  };
  await Promise.all([storms(randomFrom(seed)), wires(randomFrom(seed + 1)), leaders(randomFrom(seed + 2))]);
  return harm;
}

function breakSome({ balancer }: Road, random: Random, harm: Harm): void {
  for (const connection of balancer.connections()) {
    const dice = random();
    if (dice < HANGS) {
      connection.hang();
      harm.hangs++;
    } else if (dice < HANGS + RESETS) {
      connection.reset();
      harm.resets++;
    }
  }
}
