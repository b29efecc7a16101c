import { setTimeout } from "node:timers/promises";
import { serve } from "./worker-side.ts";

/** What the worker of `worker-pool.test.ts` can be told to do. */
export type StandInTask = "pid" | "wait" | "die" | "hang" | "grow" | "throw";

const grown: Buffer[] = [];
if (process.env["BROKEN_WORKER"] !== undefined) throw new Error("this worker cannot start");

serve(async (task: StandInTask) => {
  switch (task) {
    case "die":
      process.kill(process.pid, "SIGKILL");
      return setTimeout(60_000, 0);
    case "hang":
      for (;;);
    case "grow":
      grown.push(Buffer.alloc(300_000_000, 1));
      return process.pid;
    case "throw":
      throw new Error("what the worker says at last");
    case "wait":
      await setTimeout(20);
      return process.pid;
    case "pid":
      return process.pid;
  }
});
