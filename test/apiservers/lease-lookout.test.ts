import tap from "tap";
import { keepLooking } from "../../src/apiservers/lease-lookout.ts";
import { ManualClock } from "../manual-clock.ts";

/** A process that stands still in its sleeps, as by SIGSTOP: they end late. */
class StoppedClock extends ManualClock {
  /** For how long the next sleep lasts beyond its time, in milliseconds. */
  stoppedMs = 0;

  override monotonic(): number {
    return super.monotonic() + this.#stoodMs;
  }

  override async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    await super.sleep(ms, signal);
    this.#stoodMs += this.stoppedMs;
    this.stoppedMs = 0;
  }

  #stoodMs = 0;
}

await tap.test("keepLooking tells where the process itself stood still between two looks", async (t) => {
  const clock = new StoppedClock();
  let [looks, stands] = [0, 0];
  const end = keepLooking({ clock, look: async () => looks++, onUnseen: () => stands++ });
  await clock.advance(15_000);
  t.same([looks, stands], [2, 0], "on time");
  clock.stoppedMs = 4_000;
  await clock.advance(15_000);
  t.same([looks, stands], [3, 0], "a little late");
  clock.stoppedMs = 1_020_000;
  await clock.advance(15_000);
  t.same([looks, stands], [4, 1]);
  await clock.advance(15_000);
  t.same([looks, stands], [5, 1], "told once");
  await end();
});

await tap.test("keepLooking tells of each look that fails, and of none that its end breaks off", async (t) => {
  const clock = new ManualClock();
  const fails = [true, false, true];
  let unseen = 0;
  const look = async (signal: AbortSignal): Promise<void> => {
    const isFailing = fails.shift();
    if (isFailing === true) throw new Error("429");
    if (isFailing === undefined) await clock.sleep(60_000, signal);
  };
  const end = keepLooking({ clock, look, onUnseen: () => unseen++ });
  await clock.advance(1_000);
  t.equal(unseen, 1);
  await clock.advance(15_000);
  t.equal(unseen, 1);
  await clock.advance(15_000);
  t.equal(unseen, 2);
  await clock.advance(15_000);
  await end();
  t.equal(unseen, 2);
});
