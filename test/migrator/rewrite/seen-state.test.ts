import tap from "tap";
import { contradiction, SeenState } from "../../../src/migrator/rewrite/seen-state.ts";

function object(name: string, resourceVersion: string, uid = `uid-${name}`) {
  return { name, namespace: "ns", uid, resourceVersion };
}

await tap.test("SeenState has the highest resourceVersion, and the object that was written last", (t) => {
  const seen = new SeenState();
  t.equal(seen.current, undefined);
  seen.listed("100");
  t.same(seen.current, { resourceVersion: "100" });
  seen.wrote(object("b", "120"));
  seen.wrote(object("a", "110"));
  seen.listed("119");
  t.same(seen.current, { resourceVersion: "120", written: object("b", "120") });
  seen.listed("130");
  t.same(seen.current, { resourceVersion: "130", written: object("b", "120") });
  t.end();
});

await tap.test("SeenState keeps no resourceVersion that cannot be compared", (t) => {
  const seen = new SeenState();
  seen.listed("opaque");
  seen.wrote(object("a", "a1"));
  t.equal(seen.current, undefined);
  t.end();
});

const SEEN = { resourceVersion: "130", written: object("b", "120") };
const cases = [
  [
    "the list is older",
    { resourceVersion: "129", object: object("b", "120") },
    /at resourceVersion 129, and were at 130/,
  ],
  ["the list is as old", { resourceVersion: "130", object: object("b", "120") }, undefined],
  // As with --bump-revision: revisions go on far beyond, and objects are as the backup has them.
  ["the object is older", { resourceVersion: "1000000130", object: object("b", "90") }, /"b" is at resourceVersion 90/],
  ["the object is newer", { resourceVersion: "140", object: object("b", "135") }, undefined],
  ["the object is another one", { resourceVersion: "140", object: object("b", "90", "other") }, undefined],
  ["the object is gone", { resourceVersion: "140", object: undefined }, undefined],
  ["the list has no resourceVersion", { resourceVersion: "", object: object("b", "120") }, undefined],
] as const;

for (const [title, answer, expected] of cases) {
  await tap.test(`contradiction() where ${title}`, (t) => {
    const why = contradiction(SEEN, answer);
    if (expected === undefined) t.equal(why, undefined);
    else t.match(why, expected);
    t.end();
  });
}
