// Prints what real API servers answer to the script, or to scenarios whose names begin so: node …/record.ts [NAME…]
import { startReal } from "./start-real.ts";
import { playAll } from "./run-script.ts";
import { SCRIPT } from "./script.ts";

const wanted = process.argv.slice(2);
const scenarios = SCRIPT.filter(({ name }) => wanted.length === 0 || wanted.some((start) => name.startsWith(start)));
const { close, world } = await startReal();
try {
  const startedAt = performance.now();
  for (const [name, { error, lines }] of await playAll(world, scenarios)) {
    console.log(`\n# ${name} (${lines.length} lines)`);
    for (const line of lines) console.log(JSON.stringify(line, undefined, 1));
    if (error !== undefined) console.log("BROKEN OFF:", error);
  }
  console.error(`${((performance.now() - startedAt) / 1_000).toFixed(1)} s`);
} finally {
  await close();
}
