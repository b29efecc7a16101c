import * as fc from "fast-check";
import tap from "tap";

import { compareResourceVersions, isNewer } from "../../src/api/resource-version.ts";

await tap.test("compareResourceVersions() orders as integers do, beyond what a number holds", (t) => {
  const versions = fc.bigInt({ min: 0n, max: 2n ** 100n });
  fc.assert(
    fc.property(versions, versions, (a, b) => {
      const order = compareResourceVersions(String(a), String(b));
      return order !== undefined && Math.sign(order) === (a < b ? -1 : Number(a > b));
    }),
  );
  t.equal(compareResourceVersions("9007199254740993", "9007199254740992"), 1);
  t.equal(compareResourceVersions("0", "0"), 0);
  t.end();
});

for (const text of ["", " 1", "1 ", "01", "00", "-1", "+1", "1.0", "1e3", "0x10", "a", "1\n", "١"]) {
  await tap.test(`compareResourceVersions() follows nothing when one is ${JSON.stringify(text)}`, (t) => {
    t.equal(compareResourceVersions(text, "1"), undefined);
    t.equal(compareResourceVersions("1", text), undefined);
    t.equal(isNewer(text, "0"), false);
    t.equal(isNewer("5", text), false);
    t.end();
  });
}

await tap.test("isNewer() is true only beyond the other", (t) => {
  t.equal(isNewer("10", "9"), true);
  t.equal(isNewer("9", "9"), false);
  t.equal(isNewer("9", "10"), false);
  t.end();
});
