import { play, playOfSeed } from "./runner.ts";
import { sabotageNamed } from "./sabotages.ts";

// A process that plays the seeds which `playSeeds()` sends it.

const [, , name] = process.argv;
const sabotage = name === undefined ? undefined : sabotageNamed(name);
process.on("message", (seed: number) => {
  void play(playOfSeed(seed, sabotage), sabotage).then((played) => process.send?.({ ...played, trace: [] }));
});
// Ctrl-C in a terminal is for all processes of it: the one that started this one decides what becomes of it.
process.on("SIGINT", () => undefined);
// Not SIGKILL and no crash: what measures coverage writes its file at the end of the process.
process.on("disconnect", () => process.exit());
