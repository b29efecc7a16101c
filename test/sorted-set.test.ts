import tap from "tap";
import { SortedSet } from "../src/sorted-set.ts";
import { randomFrom } from "./chaos/random.ts";

await tap.test("SortedSet keeps an order through thousands of changes", async (t) => {
  const random = randomFrom(3);
  const set = new SortedSet<number>((a, b) => a - b);
  const known = new Set<number>();
  for (let step = 0; step < 20_000; step++) {
    const item = Math.floor(random() * 5_000);
    if (random() < (step < 10_000 ? 0.3 : 0.7)) {
      t.equal(set.delete(item), known.delete(item));
    } else {
      set.add(item);
      known.add(item);
    }
    if (step % 2_000 === 0) {
      const sorted = [...known].toSorted((a, b) => a - b);
      t.same([...set], sorted);
      t.equal(set.size, known.size);
      t.equal(set.first, sorted[0]);
    }
  }
  known.forEach((item) => set.delete(item));
  t.same([[...set], set.size, set.first], [[], 0, undefined]);
});

await tap.test("SortedSet.add() puts an item in the place of one that compares as equal", async (t) => {
  const set = new SortedSet<{ readonly key: number; readonly text: string }>((a, b) => a.key - b.key);
  set.add({ key: 1, text: "old" });
  set.add({ key: 1, text: "new" });
  t.same([...set], [{ key: 1, text: "new" }]);
  t.notOk(set.delete({ key: 2, text: "" }));
});
