import tap from "tap";
import { cutText } from "../src/cut-text.ts";

await tap.test("cutText() leaves what fits, and says how much there was of the rest", async (t) => {
  t.equal(cutText("a".repeat(100), 100), "a".repeat(100));
  const cut = cutText("a".repeat(101), 100);
  t.equal(cut.length, 100);
  t.match(cut, /^a+… \(cut: 101 characters\)$/);
});

await tap.test("cutText() cuts no character in two, wherever the cut falls", async (t) => {
  for (let before = 0; before < 3; before++) {
    const cut = cutText("a".repeat(before) + "😀".repeat(200), 120);
    t.ok(cut.length <= 120);
    t.match(cut, /^a*(😀)+… \(cut: \d+ characters\)$/u);
    t.ok(cut.isWellFormed());
  }
  t.equal(cutText("\ud800", 100), "\ufffd", "an API server stores no half of a pair");
});
