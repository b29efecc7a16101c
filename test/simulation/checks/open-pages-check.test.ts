import tap from "tap";
import { HeldPages } from "./open-pages-check.ts";

await tap.test("pages are held from the first one of which an object has yet to be written", (t) => {
  const held = new HeldPages();
  held.listed(["a", "b"]);
  held.listed(["c"]);
  held.listed([]);
  t.equal(held.count, 3);
  held.written("c");
  held.written("a");
  t.equal(held.count, 3, "b is under way");
  held.written("b");
  t.equal(held.count, 0, "a page without an object that is due is held only behind others");
  held.listed([]);
  t.equal(held.count, 0);
  t.end();
});
