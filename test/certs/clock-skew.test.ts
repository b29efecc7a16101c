import tap from "tap";
import { clocksDisagree, doClocksAgree, skewText } from "../../src/certs/clock-skew.ts";

const MINUTE = 60_000;
const DAY = 86_400_000;

const texts: readonly [skewMs: number, text: string][] = [
  [400 * DAY, "the clock of this machine is 400 days ahead of the API server's"],
  [-30 * DAY, "the clock of this machine is 30 days behind the API server's"],
  [3 * 3_600_000, "the clock of this machine is 3 hours ahead of the API server's"],
  [-5 * MINUTE, "the clock of this machine is 5 minutes behind the API server's"],
  [90_000, "the clock of this machine is 90 seconds ahead of the API server's"],
];

for (const [skewMs, text] of texts) {
  await tap.test(`skewText() of ${skewMs} ms is "${text}"`, (t) => {
    t.equal(skewText(skewMs), text);
    t.match(clocksDisagree(skewMs), {
      code: "ClocksDisagree",
      message: /^Cannot replace certificates: [^\n]*correct it/,
    });
    t.end();
  });
}

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
