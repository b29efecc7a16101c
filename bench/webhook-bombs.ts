import { setTimeout as sleep } from "node:timers/promises";
import { Agent, request } from "undici";

import { VALIDATE_PATH } from "../src/webhook/app.ts";
import { between, randomFrom } from "../test/chaos/random.ts";
import type { RunningProgram } from "../test/processes/program.ts";
import { reviewBomb } from "../test/webhook/review-bombs.ts";
import { peakMegabytesOf } from "./process-usage.ts";
import { reviewOfSize } from "./review-fixture.ts";
import { type LoadTarget, sendLoad } from "./webhook-load.ts";

const MIB = 1024 * 1024;
const CONNECTIONS = 8;
/** The same bodies in every run. */
const SEED = 20_261_122;

/** A webhook that is measured. */
export interface Webhook extends LoadTarget {
  readonly who: string;
  readonly program: RunningProgram;
  /** Whether it is bench/webhook-server.mjs, which tells the stalls of its event loop. */
  readonly tellsStalls: boolean;
}

/** What a webhook did while clients sent bodies that are made to use memory and time. */
export interface BombReport {
  readonly who: string;
  readonly bodiesPerSecond: number;
  /** Milliseconds that reviews of an API server took in between, on a connection of their own. */
  readonly reviewP50: number;
  readonly reviewLongest: number;
  /** Milliseconds that its event loop stood still at most; `undefined` where it has none. */
  readonly longestStallMs: number | undefined;
  readonly peakMegabytes: number;
}

/**
 * Sends bombs for some seconds, and reviews beside them.
 * @throws {Error} when the webhook ends
 */
export async function sendBombs(
  { who, program, tellsStalls, ...target }: Webhook,
  { seconds, signal }: { readonly seconds: number; readonly signal: AbortSignal },
): Promise<BombReport> {
  const agent = new Agent({ allowH2: false, connect: { ca: target.caPem }, connections: CONNECTIONS });
  const random = randomFrom(SEED);
  const review = JSON.parse(reviewOfSize(2_000).toString()) as object;
  const end = performance.now() + seconds * 1_000;
  let bodies = 0;
  try {
    if (tellsStalls) await stallOf(program);
    const bomb = async (): Promise<void> => {
      while (performance.now() < end) {
        signal.throwIfAborted();
        const scale = sizeOf(++bodies, random);
        const answer = await request(`https://127.0.0.1:${target.port}${VALIDATE_PATH}?timeout=5s`, {
          dispatcher: agent,
          method: "POST",
          headers: { "content-type": "application/json" },
          body: reviewBomb(random, review, scale),
        });
        await answer.body.dump();
      }
    };
    const [beside] = await Promise.all([
      sendLoad(target, reviewOfSize(2_000), { connections: 1, seconds, signal }),
      ...Array.from({ length: CONNECTIONS }, bomb),
    ]);
    return {
      who,
      bodiesPerSecond: bodies / seconds,
      reviewP50: beside.p50,
      reviewLongest: beside.longest,
      longestStallMs: tellsStalls ? await stallOf(program) : undefined,
      peakMegabytes: peakMegabytesOf(program.pid),
    };
  } finally {
    await agent.destroy();
  }
}

/** Most are small, one of twenty is large, one of a hundred as large as the webhook reads. */
function sizeOf(index: number, random: () => number): number {
  if (index % 100 === 0) return 15.9 * MIB;
  return index % 20 === 0 ? between(random, 100_000, MIB) : between(random, 10, 4_000);
}

/** The longest stall since the last call, which the program tells on a line of its own among those that it logs. */
async function stallOf(program: RunningProgram): Promise<number> {
  const before = program.stdout.length;
  program.signal("SIGUSR2");
  for (;;) {
    const [told] = /^[\d.]+(?=\n)/m.exec(program.stdout.slice(before)) ?? [];
    if (told !== undefined) return Number(told);
    await sleep(20);
  }
}
