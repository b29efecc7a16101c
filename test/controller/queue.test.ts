import tap from "tap";
import { isFinal } from "../../src/api/migration.ts";
import { MigrationQueue, type QueuedMigration, inOrder } from "../../src/controller/migration-queue.ts";
import { randomFrom } from "../chaos/random.ts";
import { queueOf, queued } from "./queued-migrations.ts";

function nextOf(migrations: readonly QueuedMigration[], busy: ReadonlySet<string>): QueuedMigration | undefined {
  return queueOf(migrations).next(busy);
}

function takesFreezeOver(migrations: readonly QueuedMigration[], resource: string): boolean {
  return queueOf(migrations).takesFreezeOver(resource);
}

await tap.test("MigrationQueue has those that ran first, then the oldest, those of low priority last", async (t) => {
  const migrations = [
    queued("low", { isLowPriority: true, created: "2025-01-01T00:00:00Z" }),
    queued("young", { created: "2026-02-01T00:00:00Z" }),
    queued("b"),
    queued("a"),
    queued("waited", { state: "Waiting", created: "2026-03-01T00:00:00Z" }),
    queued("ran", { state: "Running", created: "2026-04-01T00:00:00Z", isLowPriority: true }),
  ];
  const begun = new Set<string>();
  for (const name of ["ran", "a", "b", "young", "waited", "low"]) {
    t.equal(nextOf(migrations, begun)?.name, name, "one that waited has no precedence");
    begun.add(`${name}s.example.com`);
  }
  t.equal(nextOf([], new Set()), undefined);
});

await tap.test(
  "MigrationQueue.next() never takes a finished one, a suspended one, nor two of one resource",
  async (t) => {
    const migrations = [
      queued("done", { state: "Succeeded" }),
      queued("failed", { state: "Failed" }),
      queued("stopped", { isSuspended: true, state: "Running" }),
      queued("first", { resource: "same" }),
      queued("second", { resource: "same", created: "2026-02-01T00:00:00Z" }),
      queued("busy", { resource: "at work" }),
    ];
    t.equal(nextOf(migrations, new Set(["at work"]))?.name, "first");
    t.equal(nextOf(migrations, new Set(["at work", "same"])), undefined);
  },
);

await tap.test(
  "MigrationQueue.takesFreezeOver() counts on no migration that is held back, or that only is in the queue",
  async (t) => {
    const ran = queued("ran", { state: "Running" });
    const { resource } = ran;
    t.ok(takesFreezeOver([ran], resource));
    t.notOk(takesFreezeOver([ran], "other"));
    t.notOk(takesFreezeOver([{ ...ran, isReencryption: true }], resource), "it freezes nothing");
    t.notOk(takesFreezeOver([queued("pending", { resource })], resource), "it freezes again");
    t.notOk(takesFreezeOver([queued("waits", { resource, state: "Waiting" })], resource));
    const suspended = queued("suspended", { resource, state: "Suspended", isSuspended: true });
    t.notOk(takesFreezeOver([suspended, ran], resource), "it does not begin while the other one is suspended");
    t.notOk(takesFreezeOver([{ ...ran, isSuspended: true }, queued("behind", { resource })], resource));
  },
);

/** The queue as docs/migration-api.md has it, in as few words as possible. */
function byTheBook(known: ReadonlyMap<string, QueuedMigration>): readonly QueuedMigration[] {
  const all = [...known.values()];
  const held = new Set(all.filter((one) => one.isSuspended && !isFinal(one.state)).map(({ resource }) => resource));
  return all.filter((one) => !isFinal(one.state) && !one.isSuspended && !held.has(one.resource)).toSorted(inOrder);
}

await tap.test("MigrationQueue has the order that sorting everything would have, whatever happens to it", async (t) => {
  const random = randomFrom(7);
  const pick = <T>(of: readonly T[]): T => of[Math.floor(random() * of.length)] as T;
  const known = new Map<string, QueuedMigration>();
  const queue = new MigrationQueue();
  const resources = Array.from({ length: 12 }, (_, index) => `r${index}`);
  for (let step = 0; step < 3_000; step++) {
    const name = `m${Math.floor(random() * 200)}`;
    if (random() < 0.2) {
      t.equal(queue.delete(name), known.get(name));
      known.delete(name);
    } else {
      const migration = queued(name, {
        resource: known.get(name)?.resource ?? pick(resources),
        state: pick(["Pending", "Pending", "Running", "Waiting", "Suspended", "Succeeded", "Failed"] as const),
        isSuspended: random() < 0.02,
        isLowPriority: random() < 0.3,
        created: `2026-01-0${1 + Math.floor(random() * 5)}T00:00:00Z`,
        resourceVersion: String(step),
      });
      known.set(name, migration);
      queue.set(migration);
    }
    if (step % 25 === 0) {
      const expected = byTheBook(known);
      const busy = new Set(resources.filter(() => random() < 0.3));
      t.equal(
        queue.next(busy),
        expected.find(({ resource }) => !busy.has(resource)),
      );
      for (const [state, count] of Object.entries(queue.states)) {
        t.equal([...known.values()].filter((one) => one.state === state).length, count, state);
      }
    }
  }
});
