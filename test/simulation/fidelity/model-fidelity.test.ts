import tap from "tap";
import { describeDifference, differencesOf } from "./compare.ts";
import { LIES, LyingWorld } from "./lies.ts";
import { ModelWorld } from "./model-world.ts";
import { playAll, playOne } from "./run-script.ts";
import { SCRIPT } from "./script.ts";
import { startReal } from "./start-real.ts";

/** One difference moves what follows it: the first ones say what is wrong. */
const MAX_SHOWN = 10;

const { close, world } = await startReal();
tap.teardown(close);
const real = await playAll(world, SCRIPT);

await tap.test("real API servers play every scenario of the script to its end", async (t) => {
  for (const [name, { error, lines }] of real) {
    t.equal(error, undefined, name);
    t.ok(lines.length > 0, `${name} has lines`);
  }
  t.equal(real.size, SCRIPT.length, "scenarios have names of their own");
});

for (const scenario of SCRIPT) {
  const { name } = scenario;
  await tap.test(`the model answers as real API servers do: ${name}`, async (t) => {
    const there = real.get(name)?.lines ?? [];
    const here = await playOne(new ModelWorld(), scenario);
    t.equal(here.error, undefined);
    const differences = differencesOf(name, there, here.lines);
    for (const difference of differences.slice(0, MAX_SHOWN)) t.fail(describeDifference(difference));
    t.equal(differences.length, 0, `${there.length} lines are the same`);
  });
}

await tap.test("negative control: a model with one thing wrong is found out by the script", async (t) => {
  for (const lie of LIES) {
    const found = await Promise.all(
      SCRIPT.map(async (scenario) => {
        const { error, lines } = await playOne(new LyingWorld(lie), scenario);
        const there = real.get(scenario.name)?.lines ?? [];
        return error !== undefined || differencesOf(scenario.name, there, lines).length > 0 ? [scenario.name] : [];
      }),
    );
    t.ok(found.flat().length > 0, `${lie.name}: ${found.flat().join(", ")}`);
  }
});
