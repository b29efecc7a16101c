import tap from "tap";

import { EXIT, type ExitCode, worstOf } from "../../../src/cli/render/exit-codes.ts";

const cases: readonly [codes: readonly ExitCode[], worst: ExitCode][] = [
  [[], 0],
  [[0, 0], 0],
  [[0, 3], 3],
  [[3, 1, 0], 1],
  [[1, 2], 2],
  [[2, 130, 1], 130],
];

for (const [codes, worst] of cases) {
  await tap.test(`worstOf([${codes.join()}]) is ${worst}`, (t) => {
    t.equal(worstOf(codes), worst);
    t.end();
  });
}

await tap.test("EXIT is what the documentation promises", (t) => {
  t.same(EXIT, {
    done: 0,
    failed: 1,
    usage: 2,
    incomplete: 3,
    needsMigration: 4,
    wouldFail: 5,
    interrupted: 130,
  });
  t.end();
});
