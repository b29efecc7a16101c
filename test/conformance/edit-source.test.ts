import t from "tap";
import { diffOf, editSource } from "./edit-source.ts";

const SOURCE = "one\ntwo\nthree\nfour\n";
const EDIT = { why: "for the test", from: "two\nthree\n", to: "2\n" };

await t.test("editSource() replaces a text that is there once", async (t) => {
  t.equal(editSource("a.go", SOURCE, [EDIT, { why: "", from: "four", to: "4" }]), "one\n2\n4\n");
});

await t.test("editSource() says which edit no longer applies", async (t) => {
  t.throws(() => editSource("a.go", "one\n", [EDIT]), {
    message: 'Cannot edit "a.go": the text that begins with "two" is not there; upstream has changed',
  });
  t.throws(() => editSource("a.go", SOURCE + SOURCE, [EDIT]), /is there more than once/);
});

await t.test("diffOf() shows whole lines with their numbers", async (t) => {
  const within = { why: "", from: "hre", to: "HRE" };
  t.equal(diffOf("a.go", SOURCE, [within]), "@@ -3,1 +3,1 @@\n-three\n+tHREe");
  t.equal(diffOf("a.go", SOURCE, [EDIT]), "@@ -2,2 +2,1 @@\n-two\n-three\n+2");
  t.equal(diffOf("a.go", SOURCE, [{ why: "", from: "one\n", to: "" }]), "@@ -1,1 +1,0 @@\n-one");
});
