import tap from "tap";
import { withKstatus } from "../../src/api/kstatus.ts";
import { isFinal } from "../../src/api/migration.ts";
import { PRIORITY_ANNOTATION } from "../../src/api/names.ts";
import { MigrationQueue, type QueuedMigration, inOrder, queuedOf } from "../../src/controller/migration-queue.ts";
import { type Slot, Slots } from "../../src/controller/slots.ts";
import { randomFrom } from "../chaos/random.ts";
import { queueOf, queued } from "./queued-migrations.ts";

function nextOf(migrations: readonly QueuedMigration[], busy: ReadonlySet<string>): QueuedMigration | undefined {
  return queueOf(migrations).next(busy);
}

function takesFreezeOver(migrations: readonly QueuedMigration[], resource: string): boolean {
  return queueOf(migrations).takesFreezeOver(resource);
}

function namesOf(migrations: readonly QueuedMigration[]): readonly string[] {
  return migrations.map(({ name }) => name);
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
  t.same(
    namesOf([...queueOf(migrations).inOrder()]),
    ["ran", "a", "b", "young", "waited", "low"],
    "one that waited has no precedence",
  );
  t.equal(nextOf(migrations, new Set())?.name, "ran");
  t.equal(nextOf(migrations, new Set(["rans.example.com", "as.example.com"]))?.name, "b");
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
      t.same(namesOf([...queue.inOrder()]), namesOf(expected));
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

await tap.test("queuedOf() reads a migration", async (t) => {
  const metadata = {
    name: "m",
    uid: "u",
    resourceVersion: "1",
    creationTimestamp: "2026-01-01T00:00:00Z",
    annotations: { [PRIORITY_ANNOTATION]: "low" },
  };
  const resource = { version: "v1", resource: "pods" };
  const migration = { apiVersion: "v", kind: "k", metadata, spec: { resource, suspend: true } };
  const read = {
    name: "m",
    uid: "u",
    resourceVersion: "1",
    resource: "pods",
    state: "Pending",
    isSuspended: true,
    isLowPriority: true,
    isReencryption: false,
    created: "2026-01-01T00:00:00Z",
    conditions: [],
    isShownToKstatus: false,
  };
  t.same(queuedOf(migration), read);
  const conditions = [{ type: "Suspended", status: "True" }] as const;
  const spec = { resource };
  t.same(queuedOf({ ...migration, spec, status: { conditions, queuePosition: 3 } }), {
    ...read,
    isSuspended: false,
    state: "Suspended",
    conditions,
    queuePosition: 3,
  });
  const shown = { observedGeneration: 7, conditions: withKstatus(conditions) };
  const seen = queuedOf({ ...migration, metadata: { ...metadata, generation: 7 }, status: shown });
  t.match(seen, { generation: 7, isShownToKstatus: true, conditions });
  t.equal(seen.conditions.length, 1, "what follows from the others is not kept");
});

/** New work by its names, and what has begun. */
function slotsFor(size: number, names: string[], onBegin: (name: string, slot: Slot) => void = () => undefined) {
  const begun: { readonly name: string; readonly slot: Slot }[] = [];
  const slots = new Slots(size, {
    isThere: () => names.length > 0,
    start: (slot) => {
      const name = names.shift();
      if (name !== undefined) {
        begun.push({ name, slot });
        queueMicrotask(() => onBegin(name, slot));
      }
      return name !== undefined;
    },
  });
  const slotOf = (name: string): Slot => {
    const found = begun.find((entry) => entry.name === name)?.slot;
    if (found === undefined) {
      throw new Error(`${name} has not begun`);
    }
    return found;
  };
  return { slots, slotOf, begun: () => begun.map(({ name }) => name) };
}

const never = new AbortController().signal;

await tap.test("Slots bounds new work, and begins more when there is room", async (t) => {
  const { slots, slotOf, begun } = slotsFor(2, ["a", "b", "c"]);
  t.ok(slots.isWanted);
  slots.dispatch();
  t.same(begun(), ["a", "b"]);
  slotOf("a").give();
  t.same(begun(), ["a", "b", "c"]);
  t.notOk(slots.isWanted);
  slotOf("a").give();
  t.notOk(slotOf("a").isHeld, "one slot is given back once");
});

await tap.test("Slots lets other work go on while some only waits, and that has a turn again", async (t) => {
  const { slots, slotOf, begun } = slotsFor(1, ["a", "b", "c"]);
  slots.dispatch();
  slotOf("a").give();
  t.same(begun(), ["a", "b"]);
  let isBack = false;
  const back = slotOf("a")
    .acquire(never)
    .then(() => (isBack = true));
  await new Promise((resolve) => setImmediate(resolve));
  t.notOk(isBack, "it waits for its turn");
  t.ok(slots.isWanted);
  slotOf("b").give();
  await back;
  t.same(begun(), ["a", "b"], "it comes before the next new one");
  slotOf("a").give();
  t.same(begun(), ["a", "b", "c"]);
});
