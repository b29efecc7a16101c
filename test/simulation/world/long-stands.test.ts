import tap from "tap";
import { randomFrom } from "../../chaos/random.ts";
import type { Plan } from "../plan.ts";
import { simulate } from "../simulate.ts";
import { LONG_MS, quietLeftMs } from "./long-stands.ts";
import { Schedule } from "./schedule.ts";
import { SimProcess } from "./sim-process.ts";

const NEVER = (): boolean => false;

await tap.test("after an API server stood still for 15 minutes 75 s are left", async (t) => {
  const schedule = new Schedule(randomFrom(1));
  const [still, other] = [new SimProcess(schedule, "still"), new SimProcess(schedule, "other")];
  const pass = (ms: number): Promise<boolean> => {
    schedule.in(ms, () => undefined);
    return schedule.run(NEVER, ms);
  };
  const left = (): number => quietLeftMs(schedule.now, [still, other]);
  const stand = async (how: "pause" | "suspend", ms: number): Promise<void> => {
    still[how]();
    await pass(ms);
    t.equal(left(), 0, "a run that begins while it stands still looks at it");
    still.wake();
  };
  await stand("suspend", LONG_MS - 1);
  t.equal(left(), 0);
  for (const how of ["pause", "suspend"] as const) {
    await stand(how, LONG_MS);
    t.equal(left(), 75_000, how);
    await pass(30_000);
    still.wake();
    t.equal(left(), 45_000, "it went on already");
    still.pause();
    await pass(1_000);
    still.wake();
    t.equal(left(), 44_000, "a short pause changes nothing");
    await pass(44_000);
    t.equal(left(), 0);
  }
});

/** All machines are suspended for so long, and programs start then. */
function planWith(run: "migrate" | "reencrypt" | "controller", ms: number): Plan {
  const program = { run, kind: 0, force: false } as const;
  return {
    seed: 1,
    servers: 1,
    access: "each",
    kinds: [{ plural: "widgets", versions: ["v1alpha1", "v1"], createdIn: "v1alpha1", objects: 1 }],
    programs: [program, program],
    writeEveryMs: 60_000,
    actions: [
      { at: 10, do: "start", program: 0 },
      { at: 2_000, do: "suspendAll", ms },
      { at: 2_001 + ms, do: "start", program: 1 },
    ] as Plan["actions"],
  };
}

/** When each program began, in seconds: its first line of the trace; and when the first one went on. */
async function beginnings(plan: Plan): Promise<readonly (number | undefined)[]> {
  const { trace } = await simulate(plan);
  const lines = trace.map((line) => ({ at: Number(line.trim().split(" ")[0]), line }));
  const firstOf = (name: string, since: number): number | undefined =>
    lines.find(({ at, line }) => at > since && line.includes(` ${name}: `))?.at;
  return [firstOf("ksvm-0-0", 2.1), firstOf("ksvm-1-1", 0)];
}

await tap.test(
  "a program that freezes CRDs begins 75 s after such a stand, and one that lives through it goes on",
  async (t) => {
    const soon = await beginnings(planWith("migrate", LONG_MS - 60_000));
    t.ok((soon[1] ?? Number.NaN) < 850, `${soon[1]} s`);
    const [first = 0, second = 0] = await beginnings(planWith("migrate", LONG_MS));
    t.ok(first < 905, `the one that was suspended goes on after ${first} s`);
    t.ok(second >= 977, `another one begins after ${second} s`);
  },
);

await tap.test("a program that freezes nothing begins right after such a stand", async (t) => {
  const [, second = 0] = await beginnings(planWith("reencrypt", LONG_MS));
  t.ok(second < 905, `${second} s`);
});

await tap.test("a controller begins, and goes on, right after such a stand", async (t) => {
  const [first = 0, second = 0] = await beginnings(planWith("controller", LONG_MS));
  t.ok(first < 905, `${first} s`);
  t.ok(second < 905, `${second} s`);
});
