import { createHash } from "node:crypto";
import { planOf } from "../plan-of.ts";
import { simulate } from "../simulate.ts";
import type { Played, PlayTask } from "./play-task.ts";

/** Plays in this process. A simulation that throws is broken too: its error stands for a violation. */
export async function playHere(task: PlayTask): Promise<Played> {
  try {
    const { violations, trace, requests, events, elapsedMs } = await simulate(
      "plan" in task ? task.plan : planOf(task.seed),
    );
    const traceDigest = createHash("sha256").update(trace.join("\n")).digest("hex");
    const played = { violations, requests, events, elapsedMs, traceDigest };
    return task.withTrace === true ? { ...played, trace } : played;
  } catch (error) {
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    return { violations: [`error: ${text}`], requests: 0, events: 0, elapsedMs: 0, traceDigest: "" };
  }
}
