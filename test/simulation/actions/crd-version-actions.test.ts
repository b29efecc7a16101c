import tap from "tap";
import type { Plan } from "../plan.ts";
import { simulate } from "../simulate.ts";

await tap.test(
  "a client that takes the storage version out of storedVersions again and again keeps no run from pruning",
  async (t) => {
    const actions = [
      { at: 2_000, do: "flip", kind: 0, to: "v1" },
      { at: 2_000, do: "start", program: 0 },
      // So the proof before a prune takes longer than the client needs.
      { at: 67_500, do: "slow", server: 0, holdMs: 400, ms: 600_000 },
      { at: 67_500, do: "slow", server: 1, holdMs: 400, ms: 600_000 },
      {
        at: 3_000,
        on: { request: "firstPage" as const, nth: 1 },
        do: "keepPruning",
        kind: 0,
        to: "v1alpha1",
        everyMs: 400,
        ms: 600_000,
      },
    ];
    const plan: Plan = {
      seed: 5,
      servers: 2,
      access: "sampled",
      kinds: [{ plural: "widgets", versions: ["v1alpha1", "v1"], createdIn: "v1alpha1", objects: 40 }],
      hasInTree: false,
      programs: [{ run: "migrate", kind: 0, force: false }],
      writeEveryMs: 10_000_000,
      actions,
    };
    const { ends, trace, violations } = await simulate(plan);
    t.same(violations, []);
    t.ok(trace.some((line) => line.includes("it is listed again")));
    t.equal(ends[0], "migrated");
  },
);

await tap.test(
  "a run without a freeze fails where another client takes the storage version out of storedVersions",
  async (t) => {
    const actions = [
      { at: 2_000, do: "flip", kind: 0, to: "v1" },
      { at: 2_000, do: "start", program: 0 },
      {
        at: 3_000,
        on: { request: "write" as const, nth: 3 },
        do: "keepPruning",
        kind: 0,
        to: "v1alpha1",
        everyMs: 400,
        ms: 5_000,
      },
    ];
    const plan: Plan = {
      seed: 5,
      servers: 1,
      access: "each",
      kinds: [{ plural: "widgets", versions: ["v1alpha1", "v1"], createdIn: "v1alpha1", objects: 40 }],
      hasInTree: false,
      programs: [{ run: "reencrypt", kind: 0, force: false }],
      writeEveryMs: 10_000_000,
      actions,
    };
    const { ends, violations } = await simulate(plan);
    t.same(violations, []);
    t.match(ends[0], /storedVersions is \[v1alpha1\], without the storage version "v1"/);
  },
);
