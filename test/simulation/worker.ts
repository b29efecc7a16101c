import { play, playOfSeed } from "./runner.ts";

// A process that plays the seeds which `playSeeds()` sends it.

process.on("message", (seed: number) => {
  void play(playOfSeed(seed)).then((played) => process.send?.({ ...played, trace: [] }));
});
// Ctrl-C in a terminal is for all processes of it: the one that started this one decides what becomes of it.
process.on("SIGINT", () => undefined);
// Not SIGKILL and no crash: what measures coverage writes its file at the end of the process.
process.on("disconnect", () => process.exit());
