// Ends what cluster-up.ts left running, and removes its data: node test/control-plane/cluster-down.ts
import { setTimeout as sleep } from "node:timers/promises";

import { readClusterState, removeCluster, runningProcesses } from "./cluster-state.ts";

const state = readClusterState();
if (state === undefined) {
  console.log("No control plane is running");
} else {
  // Nothing is kept, so nothing needs to end gently.
  for (const [name, pid] of runningProcesses(state)) {
    process.kill(pid, "SIGKILL");
    console.log(`ended ${name} (process ${pid})`);
  }
  for (let tries = 0; runningProcesses(state).length > 0 && tries < 100; tries++) await sleep(50);
}
removeCluster();
