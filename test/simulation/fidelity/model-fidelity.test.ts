import tap from "tap";
import { playAll } from "./run-script.ts";
import { SCRIPT } from "./script.ts";
import { startReal } from "./start-real.ts";

const { close, world } = await startReal();
tap.teardown(close);
const real = await playAll(world, SCRIPT);

await tap.test("real API servers play every scenario of the script to its end", async (t) => {
  for (const [name, { error, lines }] of real) {
    t.equal(error, undefined, name);
    t.ok(lines.length > 0, `${name} has lines`);
  }
  t.equal(real.size, SCRIPT.length, "scenarios have names of their own");
  t.comment(`${[...real.values()].reduce((sum, { lines }) => sum + lines.length, 0)} lines`);
});
