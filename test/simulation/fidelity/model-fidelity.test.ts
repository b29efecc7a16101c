import tap from "tap";
import { ModelWorld } from "./model-world.ts";
import { type NormalLine, type Played, playAll, playOne } from "./play.ts";
import { startReal } from "./real-world.ts";
import { SCRIPT } from "./script.ts";
import type { World } from "./world.ts";

const { close, world } = await startReal();
tap.teardown(close);
const real = await playAll(world, SCRIPT);

type Pair = readonly [real: NormalLine | undefined, model: NormalLine | undefined];

/** The lines that differ. */
function differences({ lines: there }: Played, { lines: here }: Played): readonly Pair[] {
  const pairs = Array.from({ length: Math.max(there.length, here.length) }, (_, at) => [there[at], here[at]] as const);
  return pairs.filter(([a, b]) => JSON.stringify(a) !== JSON.stringify(b));
}

for (const scenario of SCRIPT) {
  await tap.test(`the model answers as real API servers do: ${scenario.name}`, async (t) => {
    const there = real.get(scenario.name) ?? { lines: [] };
    const here = await playOne(new ModelWorld(), scenario);
    t.equal(there.error, undefined, "real API servers play it to its end");
    t.equal(here.error, undefined, "and so does the model");
    t.ok(there.lines.length > 0);
    // One difference moves what follows it: the first ones say what is wrong.
    for (const [a, b] of differences(there, here).slice(0, 3)) t.strictSame(b, a, a?.title ?? "beyond the last line");
  });
}

/** Each has to be found by the script. */
const LIES: Readonly<Record<string, (world: World) => Partial<World>>> = {
  "a dry-run is stored": (model) => ({
    send: (request) => model.send({ ...request, query: { ...request.query, dryRun: undefined } }),
  }),
  "what is stored is in one version": (model) => ({
    stored: async (key) => {
      const entry = await model.stored(key);
      return entry && { ...entry, encoding: "example.com/v1" };
    },
  }),
};

await tap.test("negative control: a model with one thing wrong is found out by the script", async (t) => {
  for (const [name, lie] of Object.entries(LIES)) {
    const found = await Promise.all(
      SCRIPT.slice(0, 12).map(async (scenario) => {
        const played = await playOne(lying(new ModelWorld(), lie), scenario);
        return differences(real.get(scenario.name) ?? { lines: [] }, played).length > 0;
      }),
    );
    t.ok(found.includes(true), name);
  }
});

function lying(honest: World, lie: (world: World) => Partial<World>): World {
  const { send = honest.send.bind(honest), stored = honest.stored.bind(honest) } = lie(honest);
  return new Proxy(honest, {
    get(target, key) {
      const value: unknown = { send, stored }[String(key)] ?? target[key as keyof World];
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}
