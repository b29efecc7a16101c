import type { Random } from "../../chaos/random.ts";
import type { Limits } from "../actions/action-sort.ts";
import { actionSort } from "../actions/all-actions.ts";
import { serverOf } from "../actions/choices.ts";
import { type Action, isServing } from "../plan.ts";
import { oneIn, oneOf, spread } from "../world/random-choices.ts";
import type { Aim } from "./aim.ts";

/** Milliseconds that a rotation takes, roughly: it waits for API servers and for replicas. */
const ROTATION_MS = 150_000;

/** A rotation begins, and what happens to it. */
function rotation(
  random: Random,
  limits: Limits,
  during: () => readonly (Omit<Action, "at"> & Readonly<Record<string, unknown>>)[],
): readonly Action[] {
  const begunAt = Math.round(limits.startAt + spread(random, 1_000, 60_000));
  const rotated = slotsOf(limits, "rotateCertificates");
  const starts = rotated.length === 0 ? [] : [{ at: begunAt, do: "start", program: oneOf(random, rotated) }];
  // As often it has happened already when the rotation begins.
  const when = (): number => begunAt + Math.round(oneIn(random, 2) ? -500 : random() * ROTATION_MS);
  return [...starts, ...during().map((action) => ({ at: when(), ...action }))];
}

function slotsOf({ programs }: Limits, run: string): readonly number[] {
  return programs.flatMap((program, slot) => (program.run === run ? [slot] : []));
}

function servingSlotsOf({ programs }: Limits): readonly number[] {
  return programs.flatMap((program, slot) => (isServing(program) ? [slot] : []));
}

function isRotated(limits: Limits): boolean {
  const jobs = [...slotsOf(limits, "rotateCertificates"), ...slotsOf(limits, "ensureCertificates")];
  return limits.lifetimes !== undefined || jobs.length > 0;
}

/** What is aimed at the certificates of the webhook. */
export const CERTIFICATE_AIMS: readonly Aim[] = [
  {
    name: "a clock is wrong while certificates are rotated",
    weight: 5,
    suits: isRotated,
    choose: (random, limits) =>
      rotation(random, limits, () => [
        ...(oneIn(random, 2) ? [] : [late(random, limits)]),
        // Which of the two it is the plan decides: where both were wrong, nothing would be promised.
        ...[0, 1].map(() => ({ do: "jumpServer", server: serverOf(random, limits), byMs: clockOf(random) })),
        ...[...servingSlotsOf(limits), ...slotsOf(limits, "rotateCertificates")].map((program) => ({
          do: "jump",
          program,
          byMs: clockOf(random),
        })),
      ]),
  },
  {
    name: "what belongs to the webhook is damaged while certificates are rotated",
    weight: 3,
    suits: isRotated,
    choose: (random, limits) =>
      rotation(random, limits, () => {
        const name = oneOf(random, ["damageWebhook", "damageWebhook", "deleteSecret"]);
        return [{ ...actionSort(name).choose(random, limits), do: name }];
      }),
  },
];

/** An API server follows webhooks late, by less than a rotation waits for. */
function late(random: Random, limits: Limits): Omit<Action, "at"> & Readonly<Record<string, unknown>> {
  return {
    do: "lag",
    server: serverOf(random, limits),
    of: "admission",
    byMs: Math.round(spread(random, 15_000, 29_000)),
  };
}

/** By less than clocks may differ as often as by more than certificates are backdated. */
function clockOf(random: Random): number {
  const byMs = oneOf(random, [spread(random, 100, 235_000), spread(random, 310_000, 7_200_000)]);
  return Math.round(byMs) * (oneIn(random, 2) ? 1 : -1);
}
