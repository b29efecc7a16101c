import tap from "tap";
import { dueOf } from "../../src/controller/expiry.ts";
import { idleStatuses } from "../../src/controller/idle-status.ts";
import { countStates, type QueuedMigration } from "../../src/controller/migration-queue.ts";
import { isOfKstatus } from "../../src/api/kstatus.ts";
import { CREATED as NOW, queued, queueOf } from "./queued-migrations.ts";

const namesOf = (migrations: readonly QueuedMigration[]): string[] =>
  queueOf(migrations)
    .heads()
    .map(({ name }) => name);

await tap.test("MigrationQueue has those that ran first, then the oldest, those of low priority last", async (t) => {
  const migrations = [
    queued("low", { isLowPriority: true, created: "2025-01-01T00:00:00Z" }),
    queued("young", { created: "2026-02-01T00:00:00Z" }),
    queued("b"),
    queued("a"),
    queued("waited", { state: "Waiting", created: "2026-03-01T00:00:00Z" }),
    queued("ran", { state: "Running", created: "2026-04-01T00:00:00Z", isLowPriority: true }),
  ];
  t.same(namesOf(migrations), ["ran", "a", "b", "young", "waited", "low"], "one that waited has no precedence");
  t.same(namesOf([]), []);
});

await tap.test("MigrationQueue begins no finished one, no suspended one, nor two of one resource", async (t) => {
  const migrations = [
    queued("done", { state: "Succeeded" }),
    queued("failed", { state: "Failed" }),
    queued("stopped", { isSuspended: true, state: "Running", resource: "held" }),
    queued("behind", { resource: "held" }),
    queued("first", { resource: "same" }),
    queued("second", { resource: "same", created: "2026-02-01T00:00:00Z" }),
  ];
  t.same(namesOf(migrations), ["first"]);
  t.same([...queueOf(migrations).held()], [["held", "stopped"]]);
});

await tap.test("countStates() counts those that wait by their reasons, of which users may write any", async (t) => {
  const waits = (reason: string) => [{ type: "Waiting", status: "True", reason }] as const;
  const { states, waiting } = countStates([
    queued("a"),
    queued("b", { state: "Waiting", conditions: waits("ForeignFreeze") }),
    queued("c", { state: "Waiting", conditions: waits("WaitingForWebhook") }),
    queued("d", { state: "Waiting", conditions: waits("made up") }),
    queued("e", { state: "Running", conditions: [{ type: "Running", status: "True" }] }),
    queued("f", { state: "Succeeded" }),
  ]);
  t.same(states, { Pending: 1, Running: 1, Waiting: 3, Suspended: 0, Succeeded: 1, Failed: 0 });
  t.same(
    [...waiting].toSorted(([a], [b]) => a.localeCompare(b)),
    [
      ["ForeignFreeze", 1],
      ["Other", 1],
      ["WaitingForWebhook", 1],
    ],
  );
});

const idle = (migrations: readonly QueuedMigration[], ...atWork: readonly string[]) =>
  idleStatuses(queueOf(migrations), { atWork: new Set(atWork), now: NOW });

await tap.test("idleStatuses() says of each that waits that it does", async (t) => {
  const migrations = [
    queued("b"),
    queued("ran", { state: "Waiting" }),
    queued("done", { state: "Failed" }),
    queued("w"),
  ];
  const statuses = idle(migrations, "w");
  const why = { status: "True", reason: "Queued", message: "waits for its turn", lastUpdateTime: NOW };
  t.same(
    statuses.map(({ migration }) => migration.name),
    ["b"],
  );
  t.same(statuses[0]?.conditions, [
    { type: "Pending", ...why },
    { type: "Reconciling", ...why },
  ]);
});

await tap.test("idleStatuses() has nothing to say where it is said already", async (t) => {
  const first = idle([queued("a"), queued("b", { isSuspended: true })]);
  const shown = first.map(({ migration, conditions, phase }) => ({
    ...migration,
    conditions: conditions.filter(({ type }) => !isOfKstatus(type)),
    state: phase.type,
  }));
  t.equal(first.length, 2);
  t.same(idle(shown), []);
  t.equal(idle(shown.map((one) => ({ ...one, isShownToKstatus: false }))).length, 2);
});

await tap.test("idleStatuses() writes again what kstatus would misread, and never how a migration ended", async (t) => {
  const unseen = { isShownToKstatus: false };
  const succeeded = { type: "Succeeded", status: "True", reason: "Migrated", lastUpdateTime: NOW } as const;
  const failed = { ...succeeded, type: "Failed", reason: "R" } as const;
  const done = queued("done", { state: "Succeeded", conditions: [succeeded], ...unseen });
  const old = queued("old", { state: "Failed", conditions: [failed], ...unseen });
  const ending = queued("ending", { state: "Failed", conditions: [failed], ...unseen });
  t.same(
    idle([done, old, ending, queued("fine", { state: "Failed" })], "ending").map(({ conditions }) => conditions),
    [[succeeded], [failed, { ...failed, type: "Stalled" }]],
  );
});

await tap.test("idleStatuses() says how to go on with what is suspended, and with what that holds back", async (t) => {
  const migrations = [
    queued("stopped", { isSuspended: true, resource: "same" }),
    queued("asked", { resource: "same" }),
    queued("other"),
  ];
  t.match(idle(migrations), [
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
});

await tap.test("dueOf() takes what has expired, and of each resource what ended before the newest ones", async (t) => {
  const ended = (name: string, resource: string, endedAt: number, expiresAt?: number) =>
    queued(name, { resource, pastEnd: { endedAt, ...(expiresAt === undefined ? {} : { expiresAt }) } });
  const migrations = [
    ended("b", "pods", 2),
    ended("expired", "pods", 9, 10),
    ended("a", "pods", 1),
    ended("later", "pods", 3, 11),
    ended("c", "nodes", 1),
    queued("runs", { resource: "pods" }),
  ];
  const due = (limit: number): readonly string[] =>
    dueOf(migrations, { limit, now: 10 }).map(({ migration, why }) => `${migration.name}: ${why.split(" ")[0]}`);
  const [over, beyond] = ["its", "--finished-migrations-limit"];
  t.same(due(0), [`expired: ${over}`], "no limit");
  t.same(due(1), [`expired: ${over}`, `b: ${beyond}`, `a: ${beyond}`]);
  t.same(due(2), [`expired: ${over}`, `a: ${beyond}`], "what has expired takes no place");
  t.same(due(3), [`expired: ${over}`]);
});
