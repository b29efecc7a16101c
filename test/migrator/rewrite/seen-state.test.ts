import tap from "tap";
import { contradiction, type ResourceState, SeenState } from "../../../src/migrator/rewrite/seen-state.ts";

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

/** What one look is for. */
async function lookOf(seen: SeenState, during?: () => void): Promise<readonly ResourceState[]> {
  const looks: ResourceState[] = [];
  await seen.lookedFor(async (look) => {
    looks.push(look);
    during?.();
  });
  return looks;
}

await tap.test(
  "SeenState looks for nothing where nothing was seen, and for no object where none was written",
  async (t) => {
    const seen = new SeenState();
    t.same(await lookOf(seen), []);
    seen.listed("100");
    t.same(await lookOf(seen), [{ resourceVersion: "100" }]);
  },
);

await tap.test("SeenState looks for the last write before the last look, and for the first one since", async (t) => {
  const seen = new SeenState();
  for (const resourceVersion of ["110", "120", "130"]) seen.wrote(object("a", resourceVersion));
  const written = async (): Promise<unknown> =>
    (await lookOf(seen)).map((look) => [look.resourceVersion, look.written?.resourceVersion]);
  t.same(await written(), [["130", "110"]]);
  t.same(await written(), [["130", "130"]], "the last one is looked for even if nothing follows");
  for (const resourceVersion of ["140", "150", "160"]) seen.wrote(object("a", resourceVersion));
  t.same(await written(), [
    ["160", "130"],
    ["160", "140"],
  ]);
  t.same(await written(), [["160", "160"]]);
});

await tap.test("SeenState takes a write during a look for one that follows it", async (t) => {
  const seen = new SeenState();
  seen.wrote(object("a", "110"));
  await lookOf(seen, () => {
    seen.wrote(object("b", "120"));
    seen.wrote(object("c", "130"));
  });
  const resourceVersion = "130";
  t.same(await lookOf(seen), [
    { resourceVersion, written: object("a", "110") },
    { resourceVersion, written: object("b", "120") },
  ]);
});

await tap.test("SeenState looks again for what a look that failed was for", async (t) => {
  const seen = new SeenState({ resourceVersion: "105", written: object("z", "100") });
  seen.wrote(object("a", "110"));
  const look = (): never => {
    seen.wrote(object("b", "120"));
    throw new Error("no answer");
  };
  await t.rejects(seen.lookedFor(look), { message: "no answer" });
  const resourceVersion = "120";
  t.same(await lookOf(seen), [
    { resourceVersion, written: object("z", "100") },
    { resourceVersion, written: object("a", "110") },
  ]);
  t.same(await lookOf(seen), [{ resourceVersion, written: object("b", "120") }]);
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
