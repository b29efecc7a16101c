import tap from "tap";
import type { Plan } from "../plan.ts";
import { simulate } from "../simulate.ts";

await tap.test("disturbances are over only once an upgrade is undone, however many API servers joined", async (t) => {
  const actions = [
    { at: 10, do: "joinServer" },
    { at: 20, do: "joinServer" },
    { at: 2_000, do: "upgrade", everyMs: 60_000, downMs: 5_000, end: "undone", ms: 130_000 },
    { at: 4_000, do: "start", program: 0 },
  ];
  const plan: Plan = {
    seed: 7,
    servers: 1,
    access: "each",
    kinds: [{ plural: "secrets", versions: ["v1"], createdIn: "v1", objects: 1, isBuiltIn: true }],
    programs: [{ run: "migrate", kind: 0, force: false }],
    writeEveryMs: 30_000,
    actions,
  };
  const { trace, violations } = await simulate(plan);
  t.same(violations, []);
  const over = trace.findIndex((line) => line.includes("all disturbances are over"));
  const replaced = trace.flatMap((line, index) => (line.includes("replaces API server") ? [index] : []));
  t.equal(replaced.length, 6);
  t.ok(replaced.every((index) => index < over));
});
