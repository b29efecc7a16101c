import tap from "tap";
import type { Action, Plan } from "../plan.ts";
import { simulate } from "../simulate.ts";

const ACTIONS: readonly (Action & Readonly<Record<string, unknown>>)[] = [
  { at: 10, do: "start", program: 0 },
  { at: 10, do: "createMigrations", writes: 2, kind: 0, count: 1, of: "kind", how: "low" },
  { at: 500, do: "slow", server: 1, ms: 120_000, holdMs: 60_000, writes: 10 },
  { at: 2_000, do: "flip", kind: 0, to: "v1", writes: 10 },
  { at: 145_000, do: "foreignPrune", kind: 0, isCareful: false },
];

const PLAN: Plan = {
  // Users put things right at the end: they delete the migration that they made, and the StorageState with it.
  seed: 5_000_102,
  servers: 2,
  access: "sampled",
  kinds: [{ plural: "widgets", versions: ["v1alpha1", "v1beta1", "v1"], createdIn: "v1beta1", objects: 1 }],
  programs: [{ run: "controller", kind: 0, force: false, trigger: "on" }],
  writeEveryMs: 59_000,
  ageMs: 120_000,
  actions: ACTIONS,
};

await tap.test(
  "StorageStateCheck holds nobody to what a user has deleted, which another client had pruned",
  async (t) => {
    const { trace, violations } = await simulate(PLAN);
    t.ok(trace.some((line) => line.includes("prunes to v1: 200")));
    t.same(violations, []);
  },
);
