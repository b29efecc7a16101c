import { type Random, randomFrom } from "../chaos/random.ts";
import type { Action, Plan, ProgramPlan } from "./plan.ts";
import { oneIn, oneOf, spread } from "./world/random-choices.ts";

/** What a world has beside its runs. */
export interface Installation extends Pick<Plan, "guard" | "lifetimes"> {
  readonly programs: readonly ProgramPlan[];
  /** That start them. @param firstSlot the slot of the first of them */
  readonly actions: (firstSlot: number) => readonly Action[];
}

/** So that what is installed changes nothing of what else a seed stands for. */
const SALT = 0x1257a11;
const MINUTE_MS = 60_000;
/** Runs alone. */
export const NOTHING: Installation = { programs: [], actions: () => [] };

/** What is installed in the world of a seed: one in seven has the webhook, some of those certificates that soon end. */
export function installationOf(seed: number): Installation {
  const random = randomFrom(seed ^ SALT);
  if (oneIn(random, 16)) return initializers(random);
  if (!oneIn(random, 7)) return NOTHING;
  const replicas = Array<ProgramPlan>(oneOf(random, [1, 2, 2, 3])).fill(program("webhook"));
  const starts = replicas.map(() => Math.round(spread(random, 1, 300)));
  const isKept = oneIn(random, 3);
  const jobs = isKept || oneIn(random, 2) ? jobsOf(random) : [];
  const installed = [...replicas, ...jobs.map(({ run }) => program(run))];
  const at = [...starts, ...jobs.map((job) => job.at)];
  return {
    guard: oneOf(random, ["auto", "auto", "webhook", "policy"]),
    ...(isKept ? { lifetimes: lifetimesOf(random) } : {}),
    programs: installed,
    actions: (firstSlot) => at.map((when, index) => ({ at: when, do: "start", program: firstSlot + index })),
  };
}

/** The Job of the initializer, which runs again where it fails, and users who run it by hand at the same time. */
function initializers(random: Random): Installation {
  const count = oneOf(random, [1, 2, 2, 3]);
  const at = Array.from({ length: count + 2 }, () => Math.round(spread(random, 1, 3 * MINUTE_MS)));
  return {
    programs: Array<ProgramPlan>(count).fill(program("init")),
    actions: (firstSlot) => at.map((when, index) => ({ at: when, do: "start", program: firstSlot + (index % count) })),
  };
}

function program(run: ProgramPlan["run"]): ProgramPlan {
  return { run, kind: 0, force: false };
}

/** The Job, the CronJob and administrators. */
function jobsOf(random: Random): readonly { readonly run: ProgramPlan["run"]; readonly at: number }[] {
  return Array.from({ length: oneOf(random, [0, 1, 2, 3]) }, () => ({
    run: oneOf(random, ["ensureCertificates", "rotateCertificates", "rotateCertificates"] as const),
    at: Math.round(spread(random, 1, 30 * MINUTE_MS)),
  }));
}

/** As long as what is left of a CA that is due has to be enough for the serving certificate. */
function lifetimesOf(random: Random): { readonly caMs: number; readonly servingMs: number } {
  const servingMs = Math.round(spread(random, 6 * MINUTE_MS, 30 * MINUTE_MS));
  return { servingMs, caMs: 3 * servingMs };
}
