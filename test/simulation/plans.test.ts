import tap from "tap";
import { play, savedPlans } from "./runner.ts";

tap.setTimeout(1_800_000);

await tap.test("no plan that once broke something breaks anything", async (t) => {
  for (const plan of savedPlans()) t.same((await play(plan)).violations, [], `make simulate ${plan.name}`);
});
