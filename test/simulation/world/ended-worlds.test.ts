import { queryObjects } from "node:v8";
import tap from "tap";
import { planOf } from "../plan-of.ts";
import { simulate } from "../simulate.ts";
import { World } from "./world.ts";

/** Node.js 22 has it; the types that are installed have the form without options. */
const countOf = queryObjects as unknown as (constructor: unknown, options: { readonly format: "count" }) => number;

await tap.test(
  "nothing keeps a world that is over, whatever its processes waited for",
  { timeout: 300_000 },
  async (t) => {
    let controlled = 0;
    for (let seed = 1; seed <= 20; seed++) {
      const plan = planOf(seed);
      controlled += plan.programs.some(({ run }) => run === "controller") ? 1 : 0;
      await simulate(plan);
    }
    t.ok(controlled > 1, `${controlled} of them have controllers`);
    t.ok(countOf(World, { format: "count" }) <= 1, `${countOf(World, { format: "count" })} are left`);
  },
);
