import tap from "tap";
import { areUnmanaged, hasController } from "./actions/choices.ts";
import { isServing } from "./plan.ts";
import { planOf } from "./plan-of.ts";

await tap.test(
  "in some worlds no controller freezes or prunes, and two CRDs are rewritten one after the other",
  (t) => {
    const seen = { controlled: 0, unmanaged: 0, late: 0, pruned: 0, twoCrds: 0 };
    for (let seed = 1; seed <= 4_000; seed++) {
      const plan = planOf(seed);
      seen.controlled += hasController(plan) ? 1 : 0;
      if (!areUnmanaged(plan)) continue;
      const controllers = plan.programs.filter(({ run }) => run === "controller");
      t.ok(
        controllers.every((one) => one.unmanaged === true && !isServing(one)),
        `SEED=${seed}`,
      );
      seen.unmanaged++;
      seen.late += controllers.every(({ trigger }) => trigger === "off") && plan.servers > 1 ? 1 : 0;
      seen.pruned += plan.actions.some((action) => action.do === "pruneMigrated") ? 1 : 0;
      seen.twoCrds += plan.kinds.filter(({ isBuiltIn }) => isBuiltIn !== true).length > 1 ? 1 : 0;
    }
    const { controlled, late, pruned, twoCrds, unmanaged } = seen;
    t.ok(unmanaged * 16 > controlled && unmanaged * 4 < controlled, JSON.stringify(seen));
    t.ok(Math.min(late, pruned, twoCrds) * 3 > unmanaged, JSON.stringify(seen));
    t.end();
  },
);
