import t from "tap";
import { Client } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { Limiter } from "../../src/migrator/limiter.ts";
import { VirtualTime } from "./virtual-time.ts";

const { signal } = new AbortController();

/** An API server that works on so many requests at a time, each of which takes `serviceMs`; others wait in a queue. */
class Server {
  readonly #time: VirtualTime;
  readonly #serviceMs: number;
  #idle: number;
  readonly #queue: (() => void)[] = [];

  constructor(time: VirtualTime, { cores, serviceMs }: { readonly cores: number; readonly serviceMs: number }) {
    this.#time = time;
    this.#idle = cores;
    this.#serviceMs = serviceMs;
  }

  async serve(roundTripMs: number): Promise<number> {
    const start = this.#time.now;
    await this.#time.sleep(roundTripMs / 2);
    if (this.#idle > 0) this.#idle--;
    else await new Promise<void>((resolve) => this.#queue.push(resolve));
    await this.#time.sleep(this.#serviceMs * (0.8 + 0.4 * random()));
    const next = this.#queue.shift();
    if (next === undefined) this.#idle++;
    else next();
    await this.#time.sleep(roundTripMs / 2);
    return this.#time.now - start;
  }
}

let seed = 1;
function random(): number {
  seed = (seed * 16_807) % 2_147_483_647;
  return seed / 2_147_483_647;
}

interface Outcome {
  readonly perSecond: number;
  /** Of the requests of others, in milliseconds, at the 99th of a hundred. */
  readonly othersP99: number;
  readonly limit: number;
}

async function run(count: number, roundTripMs: number, othersPerSecond = 0): Promise<Outcome> {
  const time = new VirtualTime();
  const server = new Server(time, { cores: 2, serviceMs: 4 });
  const client = new Client({ address: "https://a", send: () => Promise.reject(), clock: time.clock, random });
  const limiter = new Limiter(client, {});
  const others: number[] = [];
  let isOver = false;
  const ask = (): void => {
    if (isOver) return;
    void server.serve(1).then((ms) => others.push(ms));
    time.in(1_000 / othersPerSecond, ask);
  };
  if (othersPerSecond > 0) ask();
  const work = async (): Promise<void> => void (await limiter.observe(() => server.serve(roundTripMs)));
  const done = limiter.forEach(Array.from({ length: count }), work, signal).finally(() => {
    isOver = true;
  });
  await time.until(done);
  const sorted = others.toSorted((a, b) => a - b);
  return {
    perSecond: (count * 1_000) / time.now,
    othersP99: sorted[Math.floor(sorted.length * 0.99)] ?? 0,
    limit: limiter.limit,
  };
}

// Two cores at 4 ms each do 500 a second.
await t.test("nearby, an API server is kept busy by few requests", async (t) => {
  const { limit, perSecond } = await run(20_000, 1);
  t.ok(perSecond > 470, `${perSecond} a second`);
  t.ok(limit <= 12, `${limit} at the same time`);
});

await t.test("far away, it is kept busy by as many as it takes", async (t) => {
  const { limit, perSecond } = await run(20_000, 50);
  t.ok(perSecond > 430, `${perSecond} a second`);
  t.ok(limit >= 24, `${limit} at the same time`);
});

await t.test("others wait a few requests long", async (t) => {
  const { othersP99 } = await run(20_000, 1, 100);
  t.ok(othersP99 < 40, `${othersP99} ms`);
});

await t.test("an API server that fails gets less, and the first error ends the work", async (t) => {
  const time = new VirtualTime();
  const client = new Client({ address: "https://a", send: () => Promise.reject(), clock: time.clock, random });
  const limiter = new Limiter(client, { maxInFlight: 8 });
  for (let n = 0; n < 5; n++) {
    await limiter.observe(() => Promise.reject(new ApiError("x", 503, "busy"))).catch(() => undefined);
  }
  t.equal(limiter.limit, 1);
  const begun: number[] = [];
  const work = async (n: number): Promise<void> => {
    begun.push(n);
    if (n === 2) throw new Error("over");
  };
  await t.rejects(limiter.forEach([1, 2, 3, 4], work, signal), { message: "over" });
  t.same(begun, [1, 2]);
});

await t.test("requests in a second are evenly spread", async (t) => {
  const time = new VirtualTime();
  const client = new Client({ address: "https://a", send: () => Promise.reject(), clock: time.clock, random });
  const limiter = new Limiter(client, { maxQps: 10 });
  const begun: number[] = [];
  const work = async (): Promise<void> => void begun.push(time.now);
  await time.until(limiter.forEach([1, 2, 3, 4], work, signal));
  t.same(begun, [0, 100, 200, 300]);
});
