import tap from "tap";
import { type Slot, Slots } from "../../src/controller/slots.ts";

/** New work by its names, and what has begun. */
function queueOf(size: number, names: string[], onBegin: (name: string, slot: Slot) => void = () => undefined) {
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

function tick(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

await tap.test("Slots bounds new work, and begins more when there is room", async (t) => {
  const { slots, slotOf, begun } = queueOf(2, ["a", "b", "c"]);
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
  const { slots, slotOf, begun } = queueOf(1, ["a", "b", "c"]);
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

await tap.test("Slots starves no work: work that waits again and again, and new work, take turns", async (t) => {
  const turns = new Map<string, number>();
  const done: string[] = [];
  const work = async (name: string, slot: Slot): Promise<void> => {
    // What is stuck gives its slot up as soon as it has it, and wants it back; what is new is done at once.
    while (name.startsWith("stuck") && done.length < 10) {
      await tick();
      slot.give();
      await slot.acquire(never);
      turns.set(name, (turns.get(name) ?? 0) + 1);
    }
    await tick();
    done.push(name);
    slot.give();
  };
  const names = Array.from({ length: 10 }, (_, index) => `new${index}`);
  const { slots } = queueOf(1, ["stuck0", "stuck1", "stuck2", ...names], (name, slot) => void work(name, slot));
  slots.dispatch();
  for (let ticks = 0; done.length < 13 && ticks < 1_000; ticks++) {
    await tick();
  }
  t.same(
    done.filter((name) => name.startsWith("new")),
    names,
    "each new one had its turn",
  );
  for (const name of ["stuck0", "stuck1", "stuck2"]) {
    t.ok((turns.get(name) ?? 0) >= 2, `${name} had its turn again and again: ${turns.get(name)}`);
  }
});

await tap.test("Slots lets work that is told to end leave the queue", async (t) => {
  const { slots, slotOf, begun } = queueOf(1, ["a", "b", "c"]);
  slots.dispatch();
  slotOf("a").give();
  const abort = new AbortController();
  const waiting = slotOf("a").acquire(abort.signal);
  abort.abort(new Error("end"));
  await t.rejects(waiting, { message: "end" });
  slotOf("b").give();
  t.same(begun(), ["a", "b", "c"]);
  await t.rejects(slotOf("a").acquire(abort.signal), { message: "end" });
  slotOf("a").give();
  t.ok(slotOf("c").isHeld);
});
