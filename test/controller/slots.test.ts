import tap from "tap";
import { Slots } from "../../src/controller/slots.ts";

await tap.test("Slots bounds new work, and tells when there is room", async (t) => {
  let told = 0;
  const slots = new Slots(2, () => told++);
  t.equal(slots.free, 2);
  slots.take();
  slots.take();
  t.equal(slots.free, 0);
  slots.give();
  t.equal(slots.free, 1);
  t.equal(told, 1);
});

await tap.test("Slots lets other work go on while some is parked, and that comes first afterwards", async (t) => {
  const slots = new Slots(1, () => undefined);
  slots.take();
  const wait = Promise.withResolvers<void>();
  let isBack = false;
  const parked = slots.parked(() => wait.promise).then(() => (isBack = true));
  t.equal(slots.free, 1);
  slots.take();
  wait.resolve();
  await new Promise((resolve) => setImmediate(resolve));
  t.notOk(isBack, "it waits for its slot");
  t.equal(slots.free, 0);
  slots.give();
  await parked;
  t.equal(slots.free, 0, "it has the slot again");
});

await tap.test("Slots takes the slot back at once where parked work is told to end", async (t) => {
  const slots = new Slots(1, () => undefined);
  slots.take();
  await t.rejects(
    slots.parked(() => Promise.reject(new Error("end"))),
    { message: "end" },
  );
  t.equal(slots.free, 0);
  slots.give();
  t.equal(slots.free, 1);
});
