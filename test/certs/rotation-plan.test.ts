import * as fc from "fast-check";
import tap from "tap";
import { issuePeriodOf } from "../../src/certs/issue.ts";
import {
  type CertificateFacts,
  type RotationInput,
  type StoredFacts,
  doClocksAgree,
  MAX_CLOCK_SKEW_MS,
  nextStep,
  renewalTimeOf,
} from "../../src/certs/rotation-plan.ts";
import { validityOf } from "../../src/certs/rotation-writes.ts";
import { TEST_SEED } from "../seed.ts";

const SECOND = 1_000;
const DAY = 86_400 * SECOND;
const T0 = Date.parse("2026-01-01T00:00:00Z");

function certificate(fingerprint: string, days: number, notBefore = T0): CertificateFacts {
  return { fingerprint, notBefore, notAfter: notBefore + days * DAY };
}

const STORED: StoredFacts = {
  signer: certificate("A", 360),
  next: undefined,
  bundle: [certificate("A", 360)],
  serving: { ...certificate("a1", 90), issuer: "A", coversNames: true },
  seenAt: undefined,
  switchedAt: undefined,
};
/** A new CA is in the bundle. */
const INTRODUCED: StoredFacts = {
  ...STORED,
  next: certificate("B", 360),
  bundle: [certificate("A", 360), certificate("B", 360)],
};
/** The new CA signs, the old one is still trusted. */
const SWITCHED: StoredFacts = {
  ...STORED,
  signer: certificate("B", 360),
  bundle: [certificate("A", 360), certificate("B", 360)],
  serving: { ...certificate("b1", 90), issuer: "B", coversNames: true },
};
const FUTURE_CA = certificate("A", 360, T0 + 30 * DAY);
const FUTURE_CB = certificate("B", 360, T0 + 30 * DAY);
const INPUT: RotationInput = {
  stored: STORED,
  now: T0 + DAY,
  clockSkewMs: 0,
  waitNow: T0 + DAY,
  drifted: false,
  served: false,
  renewBefore: 1 / 3,
  apiServerDwellMs: 30 * SECOND,
  replicaDwellMs: 90 * SECOND,
};
const SERVING_DUE = T0 + 60 * DAY;
const CA_DUE = T0 + 240 * DAY;
const LONG_SERVING = { ...STORED, serving: { ...certificate("a1", 360), issuer: "A", coversNames: true } };

const cases: readonly [name: string, input: Partial<RotationInput>, step: object][] = [
  ["no Secret", { stored: undefined }, { type: "create", reason: "there is none" }],
  ["nothing due", {}, { type: "nothing", until: SERVING_DUE }],
  ["a second outside the serving certificate's window", { now: SERVING_DUE - SECOND }, { type: "nothing" }],
  ["a second inside the serving certificate's window", { now: SERVING_DUE + SECOND }, { type: "renewServing" }],
  ["a second outside the CA's window", { now: CA_DUE - SECOND, stored: LONG_SERVING }, { type: "nothing" }],
  ["a second inside the CA's window", { now: CA_DUE + SECOND, stored: LONG_SERVING }, { type: "introduceCa" }],
  [
    "a second outside a window of a tenth",
    { now: T0 + 81 * DAY - SECOND, renewBefore: 0.1 },
    { type: "nothing", until: T0 + 81 * DAY },
  ],
  ["a second inside a window of a tenth", { now: T0 + 81 * DAY + SECOND, renewBefore: 0.1 }, { type: "renewServing" }],
  ["asked for", { replaceSigner: "A" }, { type: "introduceCa", reason: "it was asked for" }],
  ["asked for, and done", { replaceSigner: "0" }, { type: "nothing" }],
  ["a name is missing", { stored: withServing({ coversNames: false }) }, { type: "renewServing" }],
  ["the serving certificate is missing", { stored: { ...STORED, serving: undefined } }, { type: "renewServing" }],
  ["the serving certificate expired", { now: T0 + 90 * DAY }, { type: "renewServing" }],
  [
    "the serving certificate not valid yet",
    { stored: withServing({ notBefore: T0 + 30 * DAY }) },
    { type: "renewServing", reason: "the serving certificate is not valid yet" },
  ],
  [
    "the CA of the serving certificate not valid yet",
    { stored: { ...STORED, signer: FUTURE_CA, bundle: [FUTURE_CA] } },
    { type: "create", reason: "the CA that signed it is not valid yet" },
  ],
  [
    "the CA that signs not valid yet, and another one signed what is served",
    { stored: { ...STORED, signer: FUTURE_CB, bundle: [certificate("A", 360), FUTURE_CB] } },
    { type: "introduceCa", reason: "the CA is not valid yet" },
  ],
  [
    "a new CA that is not valid yet",
    { stored: { ...seen(3_000), next: FUTURE_CB, bundle: [certificate("A", 360), FUTURE_CB] } },
    { type: "noteSwitched" },
  ],
  ["a new CA seen in an hour, by a clock that was ahead", { stored: seen(-3_600) }, { type: "proveSeen" }],
  [
    "a new CA that signs since an hour from now, by a clock that was ahead",
    { stored: switched(-3_600), served: true },
    { type: "noteSwitched" },
  ],
  ["nobody in the bundle signed it", { stored: withServing({ issuer: undefined }) }, { type: "renewServing" }],
  [
    "it is not for servers",
    { stored: withServing({ flaw: "not for servers" }) },
    { type: "renewServing", reason: "the serving certificate is not for servers" },
  ],
  [
    "it is that of another installation, which has the keys of its CAs",
    { stored: withServing({ flaw: "another installation" }) },
    { type: "create", reason: "the serving certificate is that of another installation" },
  ],
  [
    "it is that of another installation in the middle of a rotation",
    { stored: { ...INTRODUCED, serving: withServing({ flaw: "another installation" }).serving } },
    { type: "create" },
  ],
  ["another CA of the bundle signed it", { stored: withServing({ issuer: "B" }) }, { type: "renewServing" }],
  ["the CA's key is missing", { stored: { ...STORED, signer: undefined } }, { type: "introduceCa" }],
  ["nothing usable", { stored: { ...STORED, signer: undefined, serving: undefined } }, { type: "create" }],
  ["the CA and what it signed expired", { now: T0 + 400 * DAY }, { type: "create" }],

  ["a new CA nobody is known to have seen", { stored: INTRODUCED }, { type: "proveSeen" }],
  [
    "a new CA seen a second too short ago",
    { stored: seen(29) },
    { type: "wait", until: T0 + DAY + SECOND, for: "API servers" },
  ],
  ["a new CA seen long enough ago", { stored: seen(30) }, { type: "switchCa" }],
  ["a new CA seen, and the bundle reset since", { stored: seen(3_000), drifted: true }, { type: "proveSeen" }],
  [
    "a new CA, and a second outside the last half of the serving certificate's window",
    { stored: INTRODUCED, now: T0 + 75 * DAY - SECOND },
    { type: "proveSeen" },
  ],
  [
    "a new CA that nobody shows for so long, and a second inside that half",
    { stored: INTRODUCED, now: T0 + 75 * DAY + SECOND },
    { type: "renewServing", reason: "it is due, and the rotation to the next CA is held up" },
  ],
  [
    "the same, and the CA that signs is not valid for longer than what it signed",
    { stored: { ...INTRODUCED, signer: certificate("A", 90) }, now: T0 + 75 * DAY + SECOND },
    { type: "proveSeen" },
  ],
  [
    "the same, and the CA that signs is missing",
    { stored: { ...INTRODUCED, signer: undefined }, now: T0 + 75 * DAY + SECOND },
    { type: "proveSeen" },
  ],
  [
    "a new CA nobody is known to have seen, and the serving certificate expired",
    { stored: INTRODUCED, now: T0 + 91 * DAY },
    { type: "renewServing", reason: "the serving certificate expired" },
  ],
  [
    "the same, and the CA that signs is missing",
    { stored: { ...INTRODUCED, signer: undefined }, now: T0 + 91 * DAY },
    { type: "switchCa" },
  ],
  [
    "a new CA nobody is known to have seen, and the serving certificate lacks a name",
    { stored: { ...INTRODUCED, serving: withServing({ coversNames: false }).serving } },
    { type: "renewServing", reason: "the serving certificate lacks a name" },
  ],
  [
    "the same, and every API server has seen it",
    { stored: { ...seen(29), serving: withServing({ coversNames: false }).serving } },
    { type: "wait", until: T0 + DAY + SECOND, for: "API servers" },
  ],
  [
    "a new CA that every API server has seen, and the serving certificate expired",
    { stored: { ...INTRODUCED, seenAt: T0 + 91 * DAY - SECOND }, now: T0 + 91 * DAY },
    { type: "switchCa" },
  ],
  [
    "a new CA that expired while it waited",
    {
      stored: {
        ...LONG_SERVING,
        next: certificate("B", 1, T0 - 30 * DAY),
        bundle: [certificate("A", 360), certificate("B", 360)],
        switchedAt: 0,
      },
    },
    { type: "proveServed" },
  ],
  ["a rotation under way, another asked for", { stored: INTRODUCED, replaceSigner: "A" }, { type: "proveSeen" }],

  ["the new CA signs", { stored: SWITCHED }, { type: "noteSwitched" }],
  [
    "the new CA has signed a second too short",
    { stored: switched(89), served: true },
    { type: "wait", until: T0 + DAY + SECOND, for: "replicas" },
  ],
  ["the new CA has signed long enough", { stored: switched(90) }, { type: "proveServed" }],
  ["the new CA has signed long enough, and is served", { stored: switched(90), served: true }, { type: "dropOldCas" }],
  [
    "the old CA is still trusted, another rotation is asked for",
    { stored: switched(90), replaceSigner: "B" },
    { type: "introduceCa" },
  ],
];

function withServing(change: Partial<NonNullable<StoredFacts["serving"]>>): StoredFacts {
  const { serving } = STORED;
  return serving === undefined ? STORED : { ...STORED, serving: { ...serving, ...change } };
}

function seen(secondsAgo: number): StoredFacts {
  return { ...INTRODUCED, seenAt: T0 + DAY - secondsAgo * SECOND };
}

function switched(secondsAgo: number): StoredFacts {
  return { ...SWITCHED, switchedAt: T0 + DAY - secondsAgo * SECOND };
}

for (const [name, input, step] of cases) {
  await tap.test(`nextStep() with ${name} is ${JSON.stringify(step)}`, (t) => {
    t.match(nextStep({ ...INPUT, ...input }), step);
    t.end();
  });
}

await tap.test("renewalTimeOf() leaves two thirds of the lifetime before the window", (t) => {
  t.equal(renewalTimeOf(certificate("A", 90), 1 / 3), SERVING_DUE);
  t.end();
});

/** Moves every certificate, as one has that was issued by a clock that was ahead. */
function issuedLater(stored: StoredFacts, ms: number): StoredFacts {
  const later = <T extends CertificateFacts>(facts: T): T => ({
    ...facts,
    notBefore: facts.notBefore + ms,
    notAfter: facts.notAfter + ms,
  });
  const { signer, next, serving, bundle } = stored;
  return {
    ...stored,
    signer: signer && later(signer),
    next: next && later(next),
    serving: serving && later(serving),
    bundle: bundle.map(later),
  };
}

await tap.test("nextStep() never breaks what is in use at the true time, whichever of the two clocks is wrong", (t) => {
  const anyTime = fc.integer({ min: -100, max: 800 }).map((days) => T0 + days * DAY + SECOND);
  const nearly = fc.integer({ min: -300, max: 300 }).map((seconds) => seconds * SECOND);
  const scene = fc.record({
    isServerRight: fc.boolean(),
    truth: fc.integer({ min: 0, max: 400 }).map((days) => T0 + days * DAY + SECOND),
    /** By how much the other clock is wrong. */
    wrong: fc.oneof(
      nearly,
      anyTime.map((time) => time - T0),
    ),
    issuedAhead: fc.constantFrom(0, 0, 30 * DAY, 400 * DAY),
    stored: fc.constantFrom(STORED, INTRODUCED, seen(3_000), SWITCHED, switched(3_000)),
    drifted: fc.boolean(),
    served: fc.boolean(),
  });
  const types = new Set<string>();
  fc.assert(
    fc.property(scene, ({ isServerRight, truth, wrong, issuedAhead, drifted, served, ...rest }) => {
      const stored = issuedLater(rest.stored, issuedAhead);
      const [now, local] = isServerRight ? [truth, truth + wrong] : [truth + wrong, truth];
      const times = { now, waitNow: now, clockSkewMs: local - now };
      const step = nextStep({ ...INPUT, ...times, stored, drifted, served, replaceSigner: "A" });
      types.add(step.type);
      const issuer = stored.bundle.find(({ fingerprint }) => fingerprint === stored.serving?.issuer);
      const isInForceAt = (time: number): boolean =>
        [stored.serving, issuer].every((facts) => facts && facts.notBefore <= time && facts.notAfter > time);
      // Within the bound each clock may be the one that is wrong, by that much.
      const isInForce = isInForceAt(truth - MAX_CLOCK_SKEW_MS) && isInForceAt(truth + MAX_CLOCK_SKEW_MS);
      const keepsTrust =
        step.type !== "dropOldCas" || (served && stored.serving?.issuer === stored.signer?.fingerprint);
      const isSeen = step.type !== "switchCa" || !isInForce || (stored.seenAt !== undefined && !drifted);
      const issues = ["create", "introduceCa", "switchCa", "renewServing"].includes(step.type);
      const clocks = "clocks" in step ? step.clocks : undefined;
      const { notBefore, notAfter } = issuePeriodOf(validityOf(90 * DAY, clocks ?? { now }));
      // Clocks that are further apart than the lifetime are left out.
      const isFar = Math.abs(local - now) > 90 * DAY;
      const isValidAtOnce = !issues || isFar || (notBefore <= truth && notAfter > truth);
      return keepsTrust && isSeen && isValidAtOnce && (step.type !== "create" || !isInForce);
    }),
    { seed: TEST_SEED, numRuns: 2_000 },
  );
  t.ok(types.size >= 8, [...types].join(", "));
  t.end();
});

const MINUTE = 60_000;

await tap.test("doClocksAgree() is false beyond four minutes, either way", (t) => {
  for (const [skewMs, isSo] of [
    [0, true],
    [4 * MINUTE, true],
    [-4 * MINUTE, true],
    [4 * MINUTE + 1, false],
    [-4 * MINUTE - 1, false],
  ] as const) {
    t.equal(doClocksAgree(skewMs), isSo, `${skewMs} ms`);
  }
  t.end();
});
