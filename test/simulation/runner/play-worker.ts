import type { PlayTask } from "./play-task.ts";
import { serve } from "./worker-side.ts";

// A process that plays what a WorkerPool sends it. MUTATION names the mutation of src/ that it plays with.

if (process.env["MUTATION"] !== undefined) await import("../mutate.ts");
// Not before the mutation is in force.
const { playHere } = await import("./play-here.ts");
serve((task: PlayTask) => playHere(task));
