import tap from "tap";
import { ACTIONS } from "./actions/all-actions.ts";
import { isServing } from "./plan.ts";
import { planOf } from "./plan-of.ts";

const PLANS = 2_000;

function count(counts: Map<string, number>, name: string): void {
  counts.set(name, (counts.get(name) ?? 0) + 1);
}

await tap.test("each action occurs in at least one in sixty of the worlds that it suits", (t) => {
  const found = new Map<string, number>();
  const suited = new Map<string, number>();
  for (let seed = 1; seed <= PLANS; seed++) {
    const plan = planOf(seed);
    const startAt = plan.actions.find((action) => action.do === "start")?.at ?? 0;
    for (const { name, suits } of ACTIONS) if (suits?.({ ...plan, startAt }) ?? true) count(suited, name);
    for (const name of new Set(plan.actions.map((action) => action.do))) count(found, name);
  }
  for (const { name } of ACTIONS) {
    const [times, of] = [found.get(name) ?? 0, suited.get(name) ?? 0];
    t.ok(times * 60 >= of, `${name}: in ${times} of ${of}`);
  }
  t.end();
});

await tap.test(
  "where certificates are kept, the clocks of API servers are wrong or those of the keepers, not both",
  (t) => {
    const seen = { servers: 0, keepers: 0 };
    for (let seed = 1; seed <= PLANS; seed++) {
      const { actions, programs } = planOf(seed);
      if (!programs.some(isServing)) continue;
      const areServers = actions.some((action) => action.do === "jumpServer");
      const areKeepers = actions.some((action) => {
        const { program = 0 } = action as { readonly program?: number };
        return action.do === "jump" && !["migrate", "reencrypt", "init"].includes(programs[program]?.run ?? "");
      });
      t.notOk(areServers && areKeepers, `SEED=${seed}`);
      seen.servers += areServers ? 1 : 0;
      seen.keepers += areKeepers ? 1 : 0;
    }
    t.ok(seen.servers > 5 && seen.keepers > 1, `${seen.servers} and ${seen.keepers}`);
    t.end();
  },
);
