import * as fc from "fast-check";
import tap from "tap";

import { ApiError, TransportError } from "../../src/kube/errors.ts";
import { askedPauseMs, backoffMs, MAX_BACKOFF_MS } from "../../src/retry/backoff.ts";

const cases: readonly [attempt: number, random: number, retryAfter: number | undefined, delay: number][] = [
  [0, 0, undefined, 0],
  [0, 0.5, undefined, 50],
  [3, 0.5, undefined, 400],
  [100, 0.5, undefined, MAX_BACKOFF_MS / 2],
  [0, 0, 7, 7_000],
  [0, 0.5, 7, 7_050],
  [0, 0, 3_600, 120_000],
];

for (const [attempt, random, retryAfter, delay] of cases) {
  await tap.test(`backoffMs(${attempt}, ${random}, ${retryAfter}) is ${delay}`, (t) => {
    t.equal(backoffMs(attempt, random, retryAfter), delay);
    t.end();
  });
}

await tap.test("backoffMs() lies between Retry-After and 30 s more, whatever the attempt", (t) => {
  const random = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
  fc.assert(
    fc.property(fc.nat(), random, fc.nat(120), (attempt, share, retryAfter) => {
      const delay = backoffMs(attempt, share, retryAfter);
      return delay >= retryAfter * 1_000 && delay <= retryAfter * 1_000 + MAX_BACKOFF_MS;
    }),
  );
  t.end();
});

function asked(status: number, retryAfter: string, message = "busy"): number {
  return askedPauseMs(new ApiError("PATCH a", status, { retryAfter, answer: { kind: "Status", message } }));
}

await tap.test("askedPauseMs() is what an API server asks for, and not what an admission webhook says", (t) => {
  t.equal(asked(429, "7"), 7_000);
  t.equal(asked(503, "99999"), 120_000);
  t.equal(asked(429, "-7"), 0);
  t.equal(asked(429, "7", 'admission webhook "a.example.com" denied the request: busy'), 0);
  t.equal(asked(403, "7"), 0);
  t.equal(askedPauseMs(new TransportError("GET a", "https://server", new Error("reset"))), 0);
  t.end();
});
