import tap from "tap";
import {
  idleStatusesOf as statusesOf,
  type IdleContext,
  type IdleStatus,
  MOVES_AT_ONCE,
  POSITIONS_SHOWN,
} from "../../src/controller/idle-phase.ts";
import type { QueuedMigration } from "../../src/controller/migration-queue.ts";
import { CREATED as NOW, queued, queueOf } from "./queued-migrations.ts";
import { isOfKstatus } from "../../src/api/kstatus.ts";

const CONTEXT = { atWork: new Map<string, string>(), running: [], now: NOW };

function idleStatusesOf(migrations: readonly QueuedMigration[], context: IdleContext): readonly IdleStatus[] {
  return statusesOf(queueOf(migrations), context);
}

/** As it is once the statuses are written. */
function shownAs(migration: QueuedMigration, statuses: readonly IdleStatus[]): QueuedMigration {
  const written = statuses.find((status) => status.migration === migration);
  if (written === undefined) {
    return migration;
  }
  const { queuePosition: _, ...rest } = migration;
  const { queuePosition } = written;
  const conditions = written.conditions.filter(({ type }) => !isOfKstatus(type));
  return { ...rest, conditions, ...(queuePosition === undefined ? {} : { queuePosition }) };
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

await tap.test("idleStatusesOf() writes a queue that moves to its front alone", async (t) => {
  const migrations = Array.from({ length: POSITIONS_SHOWN + 50 }, (_, index) =>
    queued(`m${String(index).padStart(4, "0")}`),
  );
  const statuses = idleStatusesOf(migrations, CONTEXT);
  t.equal(statuses.filter(({ queuePosition }) => queuePosition !== undefined).length, POSITIONS_SHOWN);
  t.equal(statuses.at(-1)?.phase.message, `more than ${POSITIONS_SHOWN} are before it in the queue`);
  let shown = migrations.map((migration) => shownAs(migration, statuses)).slice(1);
  const moved = idleStatusesOf(shown, CONTEXT);
  t.equal(moved.length, MOVES_AT_ONCE, "the first of them has begun; another one came near");
  t.same(
    moved.slice(0, 10).map(({ queuePosition }) => queuePosition),
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
    "the nearest ones are always right",
  );
  let rounds = 0;
  for (let due = moved; due.length > 0 && rounds < 20; rounds++) {
    shown = shown.map((migration) => shownAs(migration, due));
    due = idleStatusesOf(shown, CONTEXT);
    t.ok(due.length <= MOVES_AT_ONCE);
  }
  t.ok(rounds <= 10, "once it rests, every position is right in the end");
  t.same(
    shown.slice(0, POSITIONS_SHOWN).map(({ queuePosition }) => queuePosition),
    Array.from({ length: POSITIONS_SHOWN }, (_, index) => index + 1),
  );
});

await tap.test("idleStatusesOf() writes the position that lags most while the queue moves all the time", async (t) => {
  let shown = Array.from({ length: 300 }, (_, index) => queued(`m${String(index).padStart(4, "0")}`));
  const first = idleStatusesOf(shown, CONTEXT);
  shown = shown.map((migration) => shownAs(migration, first));
  let worst = 0;
  for (let round = 0; round < 150; round++) {
    shown = shown.slice(1);
    const due = idleStatusesOf(shown, CONTEXT);
    t.ok(due.length <= MOVES_AT_ONCE);
    shown = shown.map((migration) => shownAs(migration, due));
    const lags = shown.slice(0, POSITIONS_SHOWN).map(({ queuePosition = 101 }, index) => queuePosition - index - 1);
    worst = Math.max(worst, ...lags);
  }
  t.ok(worst <= 15, `none is wrong by more than ${worst}`);
});

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
