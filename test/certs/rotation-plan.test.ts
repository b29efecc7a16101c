import * as fc from "fast-check";
import tap from "tap";
import {
  type CertificateFacts,
  nextStep,
  renewalTimeOf,
  type RotationInput,
  type StoredFacts,
} from "../../src/certs/rotation-plan.ts";

const SECOND = 1_000;
const DAY = 86_400 * SECOND;
const T0 = Date.parse("2026-01-01T00:00:00Z");

function certificate(fingerprint: string, days: number, notBefore = T0): CertificateFacts {
  return { fingerprint, notBefore, notAfter: notBefore + days * DAY };
}

const STORED: StoredFacts = {
  signer: certificate("A", 360),
  next: undefined,
  bundle: ["A"],
  serving: { ...certificate("a1", 90), issuer: "A", coversNames: true },
  seenAt: undefined,
  switchedAt: undefined,
};
/** A new CA is in the bundle. */
const INTRODUCED: StoredFacts = { ...STORED, next: certificate("B", 360), bundle: ["A", "B"] };
/** The new CA signs, the old one is still trusted. */
const SWITCHED: StoredFacts = {
  ...STORED,
  signer: certificate("B", 360),
  bundle: ["A", "B"],
  serving: { ...certificate("b1", 90), issuer: "B", coversNames: true },
};
const INPUT: RotationInput = {
  stored: STORED,
  now: T0 + DAY,
  serverNow: T0 + DAY,
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
  ["nobody in the bundle signed it", { stored: withServing({ issuer: undefined }) }, { type: "renewServing" }],
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
  ["a new CA, and the serving certificate expired", { stored: INTRODUCED, now: T0 + 91 * DAY }, { type: "switchCa" }],
  [
    "a new CA that expired while it waited",
    { stored: { ...LONG_SERVING, next: certificate("B", 1, T0 - 30 * DAY), bundle: ["A", "B"], switchedAt: 0 } },
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

await tap.test("nextStep() never breaks what is in use, whatever the clocks say", (t) => {
  const day = fc.integer({ min: 0, max: 400 }).map((days) => T0 + days * DAY + SECOND);
  const input = fc.record({
    stored: fc.constantFrom(STORED, INTRODUCED, seen(3_000), SWITCHED, switched(3_000)),
    now: day,
    serverNow: day,
    drifted: fc.boolean(),
    served: fc.boolean(),
  });
  fc.assert(
    fc.property(input, (input) => {
      const { stored, now, drifted, served } = input;
      const step = nextStep({ ...INPUT, ...input, replaceSigner: "A" });
      const isServing = (stored.serving?.notAfter ?? 0) > now;
      const keepsTrust =
        step.type !== "dropOldCas" || (served && stored.serving?.issuer === stored.signer?.fingerprint);
      const isSeen = step.type !== "switchCa" || !isServing || (stored.seenAt !== undefined && !drifted);
      return keepsTrust && isSeen && (step.type !== "create" || !isServing);
    }),
    { numRuns: 2_000 },
  );
  t.end();
});
