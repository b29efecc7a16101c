import tap from "tap";
import type { MigrationState } from "../../src/api/migration.ts";
import {
  activeOf,
  type Companion,
  companionNameOf,
  leftOverOf,
  nextStepOf,
} from "../../src/serve-in-tree/next-step.ts";
import { inTreeMigration } from "./in-tree-migration.ts";

function companion(state: MigrationState, name = "in-tree-one"): Companion {
  const [resource, isThorough] = ["widgets.example.com", true];
  const reason = state === "Succeeded" ? "Migrated" : "Why";
  return { name, uid: `uid of ${name}`, resource, isThorough, state, reason, message: "because" };
}

const RUNNING = { conditions: ["Running=True"], resourceVersion: "5" };

await tap.test("a migration is begun, noted, worked on, ended and completed, whatever was done before", async (t) => {
  t.same(nextStepOf(inTreeMigration(), undefined), { type: "begin" });
  t.same(nextStepOf(inTreeMigration(), companion("Succeeded")), { type: "begin" });
  t.same(nextStepOf(inTreeMigration({ conditions: ["Running=True"] }), undefined), { type: "note" });
  t.same(nextStepOf(inTreeMigration(RUNNING), undefined), { type: "work" });
  t.same(nextStepOf(inTreeMigration(RUNNING), companion("Running")), { type: "follow", isAtWork: true });
  for (const state of ["Pending", "Waiting", "Suspended"] as const) {
    t.same(nextStepOf(inTreeMigration(RUNNING), companion(state)), { type: "follow", isAtWork: false }, state);
  }
  t.same(nextStepOf(inTreeMigration(RUNNING), companion("Succeeded")), {
    type: "end",
    end: { type: "Succeeded", message: "" },
  });
  t.same(nextStepOf(inTreeMigration(RUNNING), companion("Failed")), {
    type: "end",
    end: { type: "Failed", message: "migration encountered unhandled error: Why: because" },
  });
  for (const end of ["Succeeded", "Failed"]) {
    const over = ["Running=True", `${end}=True`];
    t.same(nextStepOf(inTreeMigration({ conditions: over }), companion("Running")), { type: "complete" });
    t.equal(nextStepOf(inTreeMigration({ conditions: ["Running=False", `${end}=True`] }), undefined), undefined);
  }
});

await tap.test("a migration fails whose work another program called Succeeded", async (t) => {
  for (const reason of ["", "StorageVersionMigrationSucceeded"]) {
    const theirs = { ...companion("Succeeded"), reason };
    const message = "migration encountered unhandled error: another program than ksvm called in-tree-one Succeeded";
    t.same(nextStepOf(inTreeMigration(RUNNING), theirs), { type: "end", end: { type: "Failed", message } });
  }
  const reencrypted = { ...companion("Succeeded"), reason: "Reencrypted" };
  t.match(nextStepOf(inTreeMigration(RUNNING), reencrypted), { end: { type: "Succeeded" } });
});

function names(...migrations: Parameters<typeof activeOf>[0]): readonly string[] {
  return activeOf(migrations).map(({ metadata }) => metadata.name);
}

await tap.test("of each resource one has its turn: the one that runs, else the oldest, else by name", async (t) => {
  const [a, b] = [inTreeMigration({ name: "a" }), inTreeMigration({ name: "b" })];
  const older = inTreeMigration({ name: "z", created: "2025-01-01T00:00:00Z" });
  const other = inTreeMigration({ name: "other", resource: "gadgets" });
  t.same(names(b, a, other), ["a", "other"]);
  t.same(names(a, b, older), ["z"]);
  t.same(names(a, older, inTreeMigration({ name: "y", ...RUNNING })), ["y"]);
  const incomplete = inTreeMigration({ name: "over", conditions: ["Running=True", "Failed=True"] });
  t.same(names(a, incomplete, other), ["over", "other"], "none begins before the last one is completed");
  t.same(names(a, inTreeMigration({ name: "done", conditions: ["Running=False", "Failed=True"] })), ["a"]);
});

await tap.test("ours are deleted that nothing needs any more", async (t) => {
  const running = inTreeMigration(RUNNING);
  const over = inTreeMigration({ conditions: ["Failed=True"] });
  const name = companionNameOf(running);
  t.same(leftOverOf([companion("Running", name)], [running]), []);
  t.same(leftOverOf([companion("Succeeded", name)], [over]), []);
  for (const state of ["Running", "Succeeded"] as const) {
    t.equal(leftOverOf([companion(state, name)], []).length, 1, "its migration is gone");
    const again = inTreeMigration({ ...RUNNING, uid: "of another one of this name" });
    t.equal(leftOverOf([companion(state, name)], [again]).length, 1);
  }
  t.equal(leftOverOf([companion("Running", name)], [over]).length, 1, "another client ended its migration");
});

await tap.test(
  "the end of one that another client created under the name says nothing, and it is deleted",
  async (t) => {
    const running = inTreeMigration(RUNNING);
    const ours = companion("Succeeded", companionNameOf(running));
    t.equal(nextStepOf(running, ours)?.type, "end");
    for (const foreign of [
      { ...ours, resource: "empties.example.com" },
      { ...ours, isThorough: false },
    ]) {
      t.same(nextStepOf(running, foreign), { type: "work" });
      t.same(leftOverOf([foreign], [running]), [foreign]);
    }
  },
);
