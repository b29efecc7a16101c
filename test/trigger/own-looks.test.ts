import tap from "tap";
import { HEARTBEAT_LIMIT_MS } from "../../src/api/migration.ts";
import { OwnLooks } from "../../src/trigger/own-looks.ts";
import { ManualClock } from "../manual-clock.ts";
import { MINUTE, NOW, state } from "./situation.ts";

const NAME = "deployments.apps";
const LEFT = state(["A"], "A", { heartbeat: NOW });

/** A process that looks, and API servers whose clocks are ahead of its own. */
class Looks {
  readonly clock = new ManualClock();
  readonly looks = new OwnLooks(this.clock);

  look({ aheadMs = 0, heartbeat = NOW } = {}): void {
    this.looks.looked(NAME, heartbeat, this.#serverTime(aheadMs));
  }

  isRecent({
    aheadMs = 0,
    ...of
  }: {
    readonly aheadMs?: number;
    readonly left?: typeof LEFT | undefined;
  } = {}): boolean {
    return this.looks.isRecent(NAME, "left" in of ? of.left : LEFT, this.#serverTime(aheadMs));
  }

  #serverTime(aheadMs: number): number {
    return NOW + this.clock.monotonic() + aheadMs;
  }
}

await tap.test("OwnLooks knows for ten minutes that this process looked, by its own clock", async (t) => {
  const process = new Looks();
  t.notOk(process.isRecent(), "it has not looked yet");
  process.look();
  t.ok(process.isRecent());
  await process.clock.advance(HEARTBEAT_LIMIT_MS);
  t.ok(process.isRecent());
  await process.clock.advance(1);
  t.notOk(process.isRecent());
});

await tap.test("OwnLooks believes clocks of API servers that disagree once it has seen both", async (t) => {
  const process = new Looks();
  process.look();
  t.notOk(process.isRecent({ aheadMs: 20 * MINUTE }), "the machine of this process may have been paused");
  process.look({ aheadMs: 20 * MINUTE });
  for (const aheadMs of [0, 20 * MINUTE, 20 * MINUTE - 30_000]) t.ok(process.isRecent({ aheadMs }));
  t.notOk(process.isRecent({ aheadMs: 40 * MINUTE }));
});

await tap.test("OwnLooks: what a look learns after a pause says nothing of another resource", async (t) => {
  const [process, other] = [new Looks(), "secrets"];
  process.look();
  process.looks.looked(other, NOW, NOW);
  const isOtherRecent = (serverTime: number): boolean => process.looks.isRecent(other, LEFT, serverTime);
  t.ok(isOtherRecent(NOW));
  // The clocks of a paused virtual machine stand still, and those of API servers go on.
  process.look({ aheadMs: 60 * MINUTE });
  t.ok(process.isRecent({ aheadMs: 60 * MINUTE }));
  t.notOk(isOtherRecent(NOW + 60 * MINUTE), "nobody looked at it for an hour");
});

await tap.test("OwnLooks counts the time of a suspension", async (t) => {
  const process = new Looks();
  process.look();
  process.clock.sleepMachine(11 * MINUTE);
  t.notOk(process.isRecent());
});

await tap.test(
  "OwnLooks says nothing of a StorageState that another client wrote, or that went back in time",
  async (t) => {
    const process = new Looks();
    process.look();
    t.notOk(process.isRecent({ left: state(["A"], "A", { heartbeat: NOW - MINUTE }) }));
    t.notOk(process.isRecent({ left: undefined }));
    process.look({ heartbeat: Number.NaN });
    t.notOk(process.isRecent({ left: state(["A"], "A", { heartbeat: Number.NaN }) }));
    process.look();
    process.looks.keepOnly(() => false);
    t.notOk(process.isRecent());
  },
);
