import tap from "tap";
import { DueResources } from "../../src/cli/commands/due-resources.ts";
import { EXIT } from "../../src/cli/render/exit-codes.ts";

/** What was rewritten, each with what the API servers encrypted with. */
function done(rewritten: Readonly<Record<string, string>>) {
  return new Map(Object.entries(rewritten).map(([name, fingerprint]) => [name, { fingerprint }] as const));
}

await tap.test("DueResources of all has what came while API servers were waited for rewritten, too", async (t) => {
  const lists = [
    ["secrets", "later.example.com"],
    ["secrets", "later.example.com", "last.example.com"],
  ];
  const listAgain = () => Promise.resolve({ names: lists.shift() ?? [], code: EXIT.done });
  const due = new DueResources({ names: ["secrets"], listAgain });
  t.same(await due.after("new", done({ secrets: "new" })), { names: ["later.example.com"], why: "appeared" });
  t.same([...due.tried], ["secrets", "later.example.com"]);
  const both = done({ secrets: "new", "later.example.com": "new" });
  // What comes after a list that was made once all wrote with the new key has that key.
  t.same(await due.after("new", both), { names: [], why: "appeared" });
  t.equal(lists.length, 1);
});

await tap.test("DueResources of all lists again where the API servers changed their encryption", async (t) => {
  let listed = 0;
  const names = ["a", "b"];
  const listAgain = () => Promise.resolve({ names, code: listed++ === 0 ? EXIT.incomplete : EXIT.done });
  const due = new DueResources({ names: ["a"], listAgain });
  t.same(await due.after("2", done({ a: "1" })), { names: ["a"], why: "changed" });
  t.equal(listed, 0, "not before everything is rewritten: late writes may land until then");
  t.same(await due.after("2", done({ a: "2" })), { names: ["b"], why: "appeared" });
  t.same(await due.after("3", done({ a: "2", b: "2" })), { names: ["a", "b"], why: "changed" });
  names.push("c");
  t.same(await due.after("3", done({ a: "3", b: "3" })), { names: ["c"], why: "appeared" });
  t.equal(due.code, EXIT.incomplete, "a group could not be read once");
});

await tap.test("DueResources tries what could not be rewritten no second time", async (t) => {
  const names = ["a", "rejected"];
  const listAgain = () => Promise.resolve({ names, code: EXIT.done });
  const due = new DueResources({ names, listAgain });
  t.same((await due.after("1", done({ a: "1" }))).names, []);
});

await tap.test("DueResources that a user named are these alone", async (t) => {
  const due = new DueResources({ names: ["a", "b"] });
  t.same(await due.after("2", done({ a: "1", b: "2" })), { names: ["a"], why: "changed" });
  t.same((await due.after("2", done({ a: "2", b: "2" }))).names, []);
});
