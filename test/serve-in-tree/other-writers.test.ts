import tap from "tap";
import { IN_TREE_FIELD_MANAGER } from "../../src/api/names.ts";
import { OtherWriters } from "../../src/serve-in-tree/other-writers.ts";
import { inTreeMigration } from "./in-tree-migration.ts";

const [BEFORE, AFTER] = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"];
const own = { manager: IN_TREE_FIELD_MANAGER, time: AFTER };

await tap.test("another client that writes a status is found, and named", async (t) => {
  const old = inTreeMigration({ name: "old", writers: [{ manager: "kube-controller-manager", time: BEFORE }] });
  const others = new OtherWriters([old, inTreeMigration({ name: "bare" })]);
  t.equal(others.of(old), undefined, "what was written before does not count");
  t.equal(others.of(inTreeMigration({ name: "bare", writers: [own] })), undefined);
  t.equal(others.of(inTreeMigration({ name: "new", writers: [own] })), undefined);
  const written = { manager: "kube-controller-manager", time: AFTER };
  for (const name of ["old", "bare", "new"]) {
    t.same(others.of(inTreeMigration({ name, writers: [own, written] })), {
      migration: name,
      manager: written.manager,
    });
  }
  const again = inTreeMigration({ name: "old", uid: "another", writers: old.writers ?? [] });
  t.ok(others.of(again), "one that was deleted and created again is another one");
});
