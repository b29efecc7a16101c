import { flushCompileCache } from "node:module";
import type { PlayTask } from "./play-task.ts";
import { serve } from "./worker-side.ts";

// A process that plays what a WorkerPool sends it. MUTATION names the mutation of src/ that it plays with.

if (process.env["MUTATION"] !== undefined) await import("../mutate.ts");
// Not before the mutation is in force.
const { playHere } = await import("./play-here.ts");
let isFirst = true;
serve(async (task: PlayTask) => {
  const played = await playHere(task);
  // A pool may end this process by a signal, before Node has kept what it compiled for the next one (NODE_COMPILE_CACHE).
  if (isFirst) flushCompileCache();
  isFirst = false;
  return played;
});
