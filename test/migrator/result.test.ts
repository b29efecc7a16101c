import tap from "tap";

import { Tally } from "../../src/migrator/rewrite/counts.ts";
import { outcomeOf } from "../../src/migrator/result.ts";

await tap.test("outcomeOf() is incomplete as soon as one object failed", (t) => {
  const tally = new Tally();
  tally.add({ name: "a" }, { kind: "migrated", changed: true });
  t.equal(outcomeOf(tally, "migrated"), "migrated");
  t.equal(outcomeOf(tally, "dry-run"), "dry-run");
  tally.add({ name: "b" }, { kind: "failed", reason: "r" });
  t.equal(outcomeOf(tally, "migrated"), "incomplete");
  t.equal(outcomeOf(tally, "dry-run"), "incomplete");
  t.end();
});
