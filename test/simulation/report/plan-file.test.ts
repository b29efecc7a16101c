import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import tap from "tap";
import { planOf } from "../plan-of.ts";
import type { Plan } from "../plan.ts";
import { parsePlan, readPlan, savePlan } from "./plan-file.ts";
import { planText, timeText } from "./plan-text.ts";

await tap.test("a plan comes out of a file as it was, alone or with what it broke", (t) => {
  const dir = mkdtempSync(join(tmpdir(), "ksvm-plan-"));
  t.teardown(() => rmSync(dir, { recursive: true }));
  for (let seed = 1; seed <= 300; seed++) {
    const plan = planOf(seed);
    t.same(parsePlan(JSON.stringify(plan)), plan);
  }
  const file = join(dir, "deeper", "seed-3.json");
  savePlan(file, { violation: "S1: x", fromSeed: 3, plan: planOf(3) });
  t.same(readPlan(file), planOf(3));
  t.end();
});

await tap.test("a plan that cannot be played is refused with one line that says why", (t) => {
  const plan = { ...planOf(1), actions: [{ at: 1, do: "jumpServer", server: 0, byMs: 5 }] };
  t.same(parsePlan(JSON.stringify(plan)), plan);
  const action = (changes: object): object => ({ ...plan, actions: [{ ...plan.actions[0], ...changes }] });
  const refusals: readonly (readonly [unknown, RegExp])[] = [
    [[], /it is no JSON object/],
    [{ ...plan, seed: "1" }, /seed has to be an integer/],
    [{ ...plan, servers: 0 }, /servers has to be 1 or more/],
    [{ ...plan, access: "any" }, /access has to be "each" or "sampled"/],
    [{ ...plan, writeEveryMs: 0 }, /writeEveryMs has to be 1 or more/],
    [
      { ...plan, kinds: [{ ...plan.kinds[0], createdIn: "v9" }] },
      /kinds\[0\]\.createdIn has to be one of its versions/,
    ],
    [{ ...plan, programs: [{ run: "dance" }] }, /programs\[0\]\.run has to be one of migrate, reencrypt, controller, /],
    [{ ...plan, actions: undefined }, /actions has to be a list of objects/],
    [action({ do: "explode" }), /there is no action "explode"; there are: flip, /],
    [action({ at: -1 }), /actions\[0\]\.at has to be a number of milliseconds/],
    [action({ server: "0" }), /actions\[0\] \("jumpServer"\): "server" has to be a number/],
    [action({ byMs: undefined }), /actions\[0\] \("jumpServer"\): "byMs" is missing/],
    [action({ on: { request: "coffee", nth: 1 } }), /actions\[0\]\.on\.request has to be one of takeLease, /],
    [action({ on: { request: "freeze", nth: 0 } }), /actions\[0\]\.on\.nth has to be 1 or more/],
    [action({ color: "red" }), /actions\[0\]: "jumpServer" has no "color"/],
  ];
  for (const [wrong, message] of refusals) t.throws(() => parsePlan(JSON.stringify(wrong)), { message });
  t.throws(() => parsePlan("{"), /JSON/);
  t.throws(() => readPlan("/nowhere/plan.json"), {
    name: "UsageError",
    message: /^Cannot read the plan "\/nowhere\/plan.json": ENOENT/,
  });
  t.throws(() => readPlan(new URL(import.meta.url).pathname), {
    name: "UsageError",
    message: /^Cannot play the plan "/,
  });
  t.end();
});

await tap.test("planText() tells a plan in sentences", (t) => {
  const actions = [
    { at: 2_000, do: "flip", kind: 0, to: "v1", writes: 10 },
    { at: 8_588, do: "jumpServer", writes: 1, server: 0, byMs: -201_107 },
    { at: 9_000, on: { request: "freeze" as const, nth: 2, afterMs: 20 }, do: "compact" },
    { at: 700_000, do: "stopServer", server: 1, how: "pause", ms: 900 },
  ];
  const plan: Plan = {
    seed: 1,
    servers: 2,
    access: "each",
    writeEveryMs: 4_520,
    kinds: [{ plural: "widgets", versions: ["v1alpha1", "v1"], createdIn: "v1alpha1", objects: 1 }],
    programs: [{ run: "migrate", kind: 0, force: true }],
    actions,
  };
  t.same(planText(plan), [
    "2 API servers, each at an address of its own; a user writes about every 4.52 s; seed 1",
    "widgets: 1 object, versions v1alpha1, v1, stored in v1alpha1 at first",
    "program 0: ksvm migrate widgets --force",
    "       2 s  a user makes v1 the storage version of widgets; users write 10 times",
    "    8.59 s  the clock of API server 0 jumps back by 201.1 s; users write once",
    '       9 s  20 ms after ksvm sends request "freeze" no. 2: etcd forgets all older revisions',
    "  11.7 min  API server 1 stands still, for 900 ms",
  ]);
  t.same([0, 999, 1_000, 99_949, 123_456, 3_600_000].map(timeText), [
    "0 ms",
    "999 ms",
    "1 s",
    "99.9 s",
    "123.5 s",
    "60 min",
  ]);
  t.end();
});

await tap.test("each action of a plan can be told, whatever its parameters are", (t) => {
  for (let seed = 1; seed <= 2_000; seed++) {
    const plan = planOf(seed);
    for (const line of planText(plan)) {
      if (/undefined|NaN|\[object/.test(line)) t.fail(line);
    }
  }
  t.pass("all are told");
  t.end();
});
