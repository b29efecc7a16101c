import tap from "tap";
import { idleStatusesOf as statusesOf, type IdleContext, type IdleStatus } from "../../src/controller/idle-phase.ts";
import type { QueuedMigration } from "../../src/controller/migration-queue.ts";
import { CREATED as NOW, queued, queueOf } from "./queued-migrations.ts";
import { isOfKstatus } from "../../src/api/kstatus.ts";

const CONTEXT = { atWork: new Map<string, string>(), running: [], now: NOW };

function idleStatusesOf(migrations: readonly QueuedMigration[], context: IdleContext): readonly IdleStatus[] {
  return statusesOf(queueOf(migrations), context);
}

await tap.test("idleStatusesOf() shows each its place in the queue, and who is at work", async (t) => {
  const migrations = [
    queued("b"),
    queued("a"),
    queued("ran", { state: "Waiting" }),
    queued("done", { state: "Failed" }),
  ];
  const atWork = new Map([["w", "w"]]);
  const statuses = idleStatusesOf([...migrations, queued("w")], { ...CONTEXT, atWork, running: ["w"] });
  t.match(statuses, [
    { migration: { name: "a" }, queuePosition: 1 },
    { migration: { name: "b" }, queuePosition: 2 },
  ]);
  t.equal(statuses.length, 2);
  const message = "number 2 in the queue; at work: w";
  const why = { status: "True", reason: "Queued", message, lastUpdateTime: NOW };
  t.same(statuses[1]?.conditions, [
    { type: "Pending", ...why },
    { type: "Reconciling", ...why },
  ]);
  const busy = { ...CONTEXT, running: ["v", "w", "x", "y", "z"] };
  t.match(idleStatusesOf([queued("a")], busy)[0]?.phase.message, /at work: v, w, x and 2 more$/);
});

await tap.test("idleStatusesOf() has nothing to say where it is said already", async (t) => {
  const first = idleStatusesOf([queued("a"), queued("b", { isSuspended: true })], CONTEXT);
  const shown = first.map(({ migration, conditions, phase, queuePosition }) => ({
    ...migration,
    conditions: conditions.filter(({ type }) => !isOfKstatus(type)),
    state: phase.type,
    ...(queuePosition === undefined ? {} : { queuePosition }),
  }));
  t.equal(first.length, 2);
  t.same(idleStatusesOf(shown, CONTEXT), []);
});

await tap.test(
  "idleStatusesOf() writes again what kstatus would misread, and never how a migration ended",
  async (t) => {
    const unseen = { isShownToKstatus: false };
    const succeeded = { type: "Succeeded", status: "True", reason: "Migrated", lastUpdateTime: NOW } as const;
    const failed = { ...succeeded, type: "Failed", reason: "R" } as const;
    const done = queued("done", { state: "Succeeded", conditions: [succeeded], ...unseen });
    const old = queued("old", { state: "Failed", conditions: [failed], ...unseen });
    const atWork = new Map([["ending", "ending"]]);
    const ending = queued("ending", { state: "Failed", conditions: [failed], ...unseen });
    const statuses = idleStatusesOf([done, old, ending, queued("fine", { state: "Failed" })], { ...CONTEXT, atWork });
    t.same(
      statuses.map(({ conditions }) => conditions),
      [[succeeded], [failed, { ...failed, type: "Stalled" }]],
    );
    const [first] = idleStatusesOf([queued("a")], CONTEXT);
    const { conditions = [], queuePosition = 0 } = first ?? {};
    const own = conditions.filter(({ type }) => !isOfKstatus(type));
    t.same(idleStatusesOf([queued("a", { conditions: own, queuePosition })], CONTEXT), []);
    t.equal(idleStatusesOf([queued("a", { conditions: own, queuePosition, ...unseen })], CONTEXT).length, 1);
  },
);

await tap.test("idleStatusesOf() says how to go on with what is suspended", async (t) => {
  const one = idleStatusesOf([queued("a", { isSuspended: true, queuePosition: 4 })], CONTEXT);
  t.match(one, [{ phase: { type: "Suspended", reason: "SuspendedByUser", message: /spec\.suspend/ } }]);
  t.equal(one[0]?.queuePosition, undefined);
});

await tap.test("idleStatusesOf() holds a migration back while another one of its resource is suspended", async (t) => {
  const migrations = [
    queued("stopped", { isSuspended: true, resource: "same" }),
    queued("asked", { resource: "same" }),
    queued("other"),
  ];
  const statuses = idleStatusesOf(migrations, CONTEXT);
  t.match(statuses, [
    { migration: { name: "other" }, queuePosition: 1 },
    { migration: { name: "stopped" }, phase: { type: "Suspended" } },
    {
      migration: { name: "asked" },
      phase: { type: "Pending", message: /^migrations\/stopped .* is suspended; .*spec\.suspend/ },
    },
  ]);
  t.equal(statuses[2]?.queuePosition, undefined);
  t.equal(queueOf(migrations).heldBy("same"), "stopped");
  t.equal(queueOf(migrations).heldBy("others.example.com"), undefined);
});
