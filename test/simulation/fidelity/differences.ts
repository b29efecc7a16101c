// Prints where the model differs from real API servers, for scenarios whose names begin so: node …/differences.ts [NAME…]
import { differencesOf, describeDifference } from "./compare.ts";
import { ModelWorld } from "./model-world.ts";
import { playAll, playOne } from "./run-script.ts";
import { SCRIPT } from "./script.ts";
import { startReal } from "./start-real.ts";

const wanted = process.argv.slice(2);
const scenarios = SCRIPT.filter(({ name }) => wanted.length === 0 || wanted.some((start) => name.startsWith(start)));
const { close, world } = await startReal();
try {
  const real = await playAll(world, scenarios);
  for (const scenario of scenarios) {
    const { name } = scenario;
    const [there, here] = [real.get(name), await playOne(new ModelWorld(), scenario)];
    const differences = differencesOf(name, there?.lines ?? [], here.lines);
    console.log(`\n# ${name}: ${there?.lines.length} lines, ${differences.length} differences`);
    for (const difference of differences) console.log(describeDifference(difference));
    console.log(...[there?.error, here.error].filter((error) => error !== undefined));
  }
} finally {
  await close();
}
