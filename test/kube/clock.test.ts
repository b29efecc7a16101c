import { execFileSync } from "node:child_process";
import { setTimeout as delay } from "node:timers/promises";
import tap from "tap";
import { systemClock } from "../../src/clock.ts";

// A timer of more than 24.8 days, 2³¹ - 1 ms, is over after 1 ms; two of them and 1 ms would be over after 3 ms.
await tap.test("systemClock.sleep() waits for durations that are too long for a timer", async (t) => {
  const abort = new AbortController();
  let isOver = false;
  const sleep = systemClock.sleep(2 * (2 ** 31 - 1) + 1, abort.signal).finally(() => {
    isOver = true;
  });
  await delay(500);
  t.equal(isOver, false, "it waits");
  abort.abort(new Error("enough"));
  await t.rejects(sleep, { message: "enough" });
  await systemClock.sleep(0);
  await systemClock.sleep(1);
});

await tap.test("systemClock.timer() and timeout() wait for durations that are too long for a timer", async (t) => {
  let calls = 0;
  const cancels = [2 ** 31, 2 * (2 ** 31 - 1) + 1, Number.POSITIVE_INFINITY].map((ms) =>
    systemClock.timer(ms, () => calls++),
  );
  const limits = [2 ** 31, 2 ** 40].map((ms) => systemClock.timeout(ms));
  const short = Promise.withResolvers<void>();
  systemClock.timer(1, short.resolve);
  await short.promise;
  await delay(500);
  cancels.forEach((cancel) => cancel());
  t.equal(calls, 0);
  t.notOk(limits.some(({ aborted }) => aborted));
});

await tap.test("systemClock takes a time below 0 for none, and Node.js warns of nothing", async (t) => {
  const warnings: string[] = [];
  const onWarning = ({ name }: Error): void => void warnings.push(name);
  process.on("warning", onWarning);
  t.teardown(() => process.off("warning", onWarning));
  await systemClock.sleep(-0.5);
  await new Promise<void>((resolve) => void systemClock.timer(-0.5, resolve));
  const { promise, resolve } = Promise.withResolvers<void>();
  systemClock.timeout(-0.5).addEventListener("abort", () => resolve());
  await Promise.all([promise, delay(50)]);
  t.same(warnings, []);
  await delay(-1);
  await delay(50);
  t.same(warnings, ["TimeoutNegativeWarning"], "negative control: Node.js warns of such a time");
});

await tap.test("systemClock.timeout() takes parts of a millisecond", async (t) => {
  const { promise, resolve } = Promise.withResolvers<void>();
  systemClock.timeout(0.5).addEventListener("abort", () => resolve());
  await Promise.all([promise, delay(50)]);
  t.notOk(systemClock.timeout(1.1 * 3_600_000).aborted);
  t.throws(() => AbortSignal.timeout(0.5), /must be an integer/, "negative control: a timer of Node.js does not");
});

// In a process of its own: nothing else may keep it alive.
await tap.test("systemClock.timer() keeps the process alive until it is over, and timeout() does not", async (t) => {
  const module = JSON.stringify(new URL("../../src/clock.ts", import.meta.url));
  const run = (text: string): string =>
    execFileSync(
      process.execPath,
      ["--input-type=module", "-e", `const { systemClock } = await import(${module}); ${text}`],
      {
        encoding: "utf8",
      },
    );
  t.equal(run('systemClock.timer(300, () => console.log("due"))'), "due\n");
  t.equal(run('systemClock.timer(600_000, () => undefined)(); console.log("cancelled")'), "cancelled\n");
  t.equal(run('systemClock.timeout(600_000); console.log("no longer")'), "no longer\n");
});
