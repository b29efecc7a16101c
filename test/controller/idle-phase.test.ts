import tap from "tap";
import { idleStatusesOf as statusesOf, type IdleContext, type IdleStatus } from "../../src/controller/idle-phase.ts";
import type { QueuedMigration } from "../../src/controller/migration-queue.ts";
import { isOfKstatus } from "../../src/api/kstatus.ts";
import { CREATED as NOW, queued, queueOf } from "./queued-migrations.ts";

const CONTEXT: IdleContext = { atWork: new Set(), now: NOW };

function idleStatusesOf(migrations: readonly QueuedMigration[], context = CONTEXT): readonly IdleStatus[] {
  return statusesOf(queueOf(migrations), context);
}

await tap.test("idleStatusesOf() says of each that waits that it does", async (t) => {
  const migrations = [
    queued("b"),
    queued("ran", { state: "Waiting" }),
    queued("done", { state: "Failed" }),
    queued("w"),
  ];
  const statuses = idleStatusesOf(migrations, { ...CONTEXT, atWork: new Set(["w"]) });
  const why = { status: "True", reason: "Queued", message: "waits for its turn", lastUpdateTime: NOW };
  t.equal(statuses.length, 1);
  t.equal(statuses[0]?.migration.name, "b");
  t.same(statuses[0]?.conditions, [
    { type: "Pending", ...why },
    { type: "Reconciling", ...why },
  ]);
});

await tap.test("idleStatusesOf() has nothing to say where it is said already", async (t) => {
  const first = idleStatusesOf([queued("a"), queued("b", { isSuspended: true })]);
  const shown = first.map(({ migration, conditions, phase }) => ({
    ...migration,
    conditions: conditions.filter(({ type }) => !isOfKstatus(type)),
    state: phase.type,
  }));
  t.equal(first.length, 2);
  t.same(idleStatusesOf(shown), []);
  t.equal(idleStatusesOf(shown.map((one) => ({ ...one, isShownToKstatus: false }))).length, 2);
});

await tap.test(
  "idleStatusesOf() writes again what kstatus would misread, and never how a migration ended",
  async (t) => {
    const unseen = { isShownToKstatus: false };
    const succeeded = { type: "Succeeded", status: "True", reason: "Migrated", lastUpdateTime: NOW } as const;
    const failed = { ...succeeded, type: "Failed", reason: "R" } as const;
    const done = queued("done", { state: "Succeeded", conditions: [succeeded], ...unseen });
    const old = queued("old", { state: "Failed", conditions: [failed], ...unseen });
    const ending = queued("ending", { state: "Failed", conditions: [failed], ...unseen });
    const atWork = new Set(["ending"]);
    const statuses = idleStatusesOf([done, old, ending, queued("fine", { state: "Failed" })], { ...CONTEXT, atWork });
    t.same(
      statuses.map(({ conditions }) => conditions),
      [[succeeded], [failed, { ...failed, type: "Stalled" }]],
    );
  },
);

await tap.test(
  "idleStatusesOf() says how to go on with what is suspended, and with what that holds back",
  async (t) => {
    const migrations = [
      queued("stopped", { isSuspended: true, resource: "same" }),
      queued("asked", { resource: "same" }),
      queued("other"),
    ];
    t.match(idleStatusesOf(migrations), [
      {
        migration: { name: "stopped" },
        phase: { type: "Suspended", reason: "SuspendedByUser", message: /spec\.suspend/ },
      },
      {
        migration: { name: "asked" },
        phase: { type: "Pending", message: /^migrations\/stopped .* is suspended; .*spec\.suspend/ },
      },
      { migration: { name: "other" }, phase: { type: "Pending", message: "waits for its turn" } },
    ]);
    t.equal(queueOf(migrations).heldBy("same"), "stopped");
    t.equal(queueOf(migrations).heldBy("others.example.com"), undefined);
  },
);
