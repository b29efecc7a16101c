import * as fc from "fast-check";
import tap from "tap";
import { isValidAt as isPeriodAt, type ValidityPeriod } from "../../src/serving/validity-period.ts";
import { doClocksAgree } from "../../src/certs/clock-skew.ts";
import { issuePeriodOf } from "../../src/certs/issue.ts";
import {
  type CertificateFacts,
  nextStep,
  type RotationInput,
  type StoredFacts,
} from "../../src/certs/rotation-plan.ts";
import type { RotationStep } from "../../src/certs/rotation-step.ts";
import { validityOf } from "../../src/certs/rotation-writes.ts";

// Whole rotations, played on what the Secret holds, while two clocks disagree.

const DAY = 86_400_000;
const T0 = Date.parse("2026-01-01T00:00:00Z");
const LIFETIMES = { ca: 360 * DAY, serving: 90 * DAY };

interface Clocks {
  /** The API server's. */
  readonly now: number;
  /** This machine's. */
  readonly local: number;
}

interface Play {
  readonly stored: StoredFacts;
  readonly waitNow: number;
  readonly served: boolean;
  /** As `certs rotate --now` has it. */
  readonly replaceSigner?: string | undefined;
}

function certificate(fingerprint: string, notBefore: number, lifetimeMs: number): CertificateFacts {
  return { fingerprint, notBefore, notAfter: notBefore + lifetimeMs };
}

/** What a step changes, as rotation-writes.ts does it. */
function taken(step: RotationStep, play: Play, now: number): Play {
  const { stored } = play;
  const { signer, next, bundle } = stored;
  const clocks = ("clocks" in step ? step.clocks : undefined) ?? { now };
  const issued = (name: string, lifetimeMs: number, latest = Number.POSITIVE_INFINITY): CertificateFacts => {
    const period = issuePeriodOf(validityOf(lifetimeMs, clocks));
    return { fingerprint: `${name}${bundle.length}${now}`, ...period, notAfter: Math.min(period.notAfter, latest) };
  };
  const servingOf = (ca: CertificateFacts): NonNullable<StoredFacts["serving"]> => {
    return { ...issued("s", LIFETIMES.serving, ca.notAfter), issuer: ca.fingerprint, coversNames: true };
  };
  const noStamps = { seenAt: undefined, switchedAt: undefined };
  const ca = issued("ca", LIFETIMES.ca);
  const change = (facts: Partial<StoredFacts>): Play => ({ ...play, stored: { ...stored, ...facts } });
  switch (step.type) {
    case "create":
      return change({ signer: ca, next: undefined, bundle: [ca], serving: servingOf(ca), ...noStamps });
    case "introduceCa":
      return change({ next: ca, bundle: [...bundle, ca], ...noStamps });
    case "switchCa":
      return change({ signer: next, next: undefined, serving: next && servingOf(next), ...noStamps });
    case "renewServing":
      return change({ serving: signer && servingOf(signer) });
    case "dropOldCas":
      return change({ bundle: signer === undefined ? [] : [signer], ...noStamps });
    case "proveSeen":
      return { ...change({ seenAt: now }), waitNow: now };
    case "noteSwitched":
      return { ...change({ switchedAt: now }), waitNow: now };
    case "proveServed":
      return { ...play, served: true };
    case "wait":
      return { ...play, waitNow: step.until };
    default:
      return play;
  }
}

function isValidAt(period: ValidityPeriod | undefined, time: number): boolean {
  return period !== undefined && isPeriodAt(period, time);
}

function isInForce({ serving, bundle }: StoredFacts, time: number): boolean {
  const issuer = bundle.find(({ fingerprint }) => fingerprint === serving?.issuer);
  return isValidAt(serving, time) && isValidAt(issuer, time);
}

function stepOf({ stored, waitNow, served, replaceSigner }: Play, { now, local }: Clocks): RotationStep {
  const timing = { renewBefore: 1 / 3, apiServerDwellMs: 30_000, replicaDwellMs: 90_000 };
  const clocks = { now, clockSkewMs: local - now, waitNow };
  const input: RotationInput = { ...timing, ...clocks, stored, drifted: false, served, replaceSigner };
  return nextStep(input);
}

/** Plays to the end; every state on the way is looked at. */
function playAll(
  start: StoredFacts,
  clocks: Clocks,
  replaceSigner?: string,
): { readonly steps: readonly string[]; readonly end: StoredFacts } {
  let play: Play = { stored: start, waitNow: clocks.now, served: false, replaceSigner };
  const steps: string[] = [];
  for (;;) {
    const step = stepOf(play, clocks);
    steps.push(step.type);
    if (step.type === "nothing" || step.type === "clocksDisagree") {
      return { steps, end: play.stored };
    }
    const after = taken(step, play, clocks.now);
    for (const time of [clocks.now, clocks.local]) {
      if (isInForce(play.stored, time) && !isInForce(after.stored, time)) {
        throw new Error(`${step.type} took away what was in force at ${time}, after ${steps.join(", ")}`);
      }
    }
    if (steps.length > 20) {
      throw new Error(`It does not end: ${steps.join(", ")}`);
    }
    play = after;
  }
}

/** What a Secret holds, with nothing under way. */
const anyStored = fc
  .record({
    caAge: fc.integer({ min: -10, max: 500 }),
    servingAge: fc.integer({ min: -10, max: 120 }),
    truth: fc.constant(T0),
  })
  .map(({ caAge, servingAge, truth }): StoredFacts => {
    const ca = certificate("A", truth - caAge * DAY, LIFETIMES.ca);
    const facts = certificate("a1", truth - Math.min(servingAge, caAge) * DAY, LIFETIMES.serving);
    const serving = { ...facts, notAfter: Math.min(facts.notAfter, ca.notAfter), issuer: "A", coversNames: true };
    return { signer: ca, next: undefined, bundle: [ca], serving, seenAt: undefined, switchedAt: undefined };
  });

/** The true time is T0 by one of them. */
const anyClocks = fc
  .record({
    isServerRight: fc.boolean(),
    wrong: fc.oneof(fc.integer({ min: -600, max: 600 }), fc.integer({ min: -3, max: 3 })).map((days) => days * DAY + 1),
  })
  .map(({ isServerRight, wrong }): Clocks => {
    return isServerRight ? { now: T0, local: T0 + wrong } : { now: T0 + wrong, local: T0 };
  });

const NUM_RUNS = { numRuns: 20_000 };

await tap.test(
  "a rotation takes away nothing that is in force at the true time, and ends, while two clocks disagree",
  (t) => {
    const ends = new Set<string>();
    fc.assert(
      fc.property(anyStored, anyClocks, fc.constantFrom("A", undefined), (stored, clocks, replaceSigner) => {
        ends.add(playAll(stored, clocks, replaceSigner).steps.join(" "));
      }),
      NUM_RUNS,
    );
    for (const whole of ["renewServing nothing", "introduceCa proveSeen wait switchCa noteSwitched wait proveServed"]) {
      t.ok(
        [...ends].some((steps) => steps.startsWith(whole)),
        whole,
      );
    }
    t.end();
  },
);

await tap.test("what both clocks have due is renewed, and valid by both where its CA is", (t) => {
  let renewed = 0;
  fc.assert(
    fc.property(anyStored, anyClocks, (stored, clocks) => {
      const times = [clocks.now, clocks.local];
      fc.pre(times.every((time) => isDueBy(stored, time)));
      renewed++;
      const { end, steps } = playAll(stored, clocks);
      const { serving, bundle } = end;
      const issuer = bundle.find(({ fingerprint }) => fingerprint === serving?.issuer);
      const isReplaced = serving !== undefined && serving.fingerprint !== stored.serving?.fingerprint;
      const isNear = Math.abs(clocks.now - clocks.local) <= LIFETIMES.serving;
      const isValid = times.every((time) => isInForce(end, time) || !isValidAt(issuer ?? serving, time));
      const isValidByOne = times.some((time) => isInForce(end, time));
      return isReplaced && isValidByOne && (!isNear || isValid) && steps[0] !== "clocksDisagree";
    }),
    NUM_RUNS,
  );
  t.ok(renewed > 1_000, `${renewed} renewals`);
  t.end();
});

function isDueBy(stored: StoredFacts, time: number): boolean {
  return stepOf({ stored, waitNow: time, served: false }, { now: time, local: time }).type !== "nothing";
}

await tap.test("what one clock alone has due is left as it is, as long as the clocks disagree", (t) => {
  fc.assert(
    fc.property(anyStored, anyClocks, (stored, clocks) => {
      const { now, local } = clocks;
      fc.pre(!doClocksAgree(local - now) && isDueBy(stored, now) !== isDueBy(stored, local));
      return playAll(stored, clocks).end === stored;
    }),
    NUM_RUNS,
  );
  t.end();
});

await tap.test(
  "validityOf() is valid by both clocks, and decades of difference make no certificate for decades",
  (t) => {
    const days = fc.integer({ min: -20_000, max: 20_000 });
    fc.assert(
      fc.property(days, fc.boolean(), (ahead, isOtherInForce) => {
        const [now, otherNow, lifetimeMs] = [T0, T0 + ahead * DAY, 90 * DAY];
        const { notBefore, notAfter } = issuePeriodOf(validityOf(lifetimeMs, { now, otherNow, isOtherInForce }));
        const isValid = (time: number): boolean => notBefore < time && notAfter >= time + lifetimeMs;
        const isNear = isOtherInForce || Math.abs(ahead) <= 90;
        return isValid(now) && (isNear ? isValid(otherNow) : notAfter - notBefore <= 2 * lifetimeMs + 300_000);
      }),
    );
    t.end();
  },
);
