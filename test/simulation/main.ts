import { type Options, optionsOf } from "./runner/play-options.ts";
import { UsageError } from "./runner/usage-error.ts";

// make simulate: plays one seed or plan with its trace (SEED=…, PLAN=…), or many seeds in worker processes (SEEDS=…), and says which
// of them break something. Exit codes: 0 nothing broke, 1 something did, 2 it cannot be played, 130 Ctrl-C.

/** What imports the code under test is imported only once a mutation of it is in force. */
async function run(options: Options): Promise<number> {
  const { play, mutation } = options;
  if (mutation !== undefined) {
    const { mutationNamed } = await import("./mutations/mutation-named.ts");
    mutationNamed(mutation);
  }
  return "count" in play ? playMany(options, play) : playAlone(options, play);
}

async function playAlone({ mutation }: Options, play: Exclude<Options["play"], { count: number }>): Promise<number> {
  if (mutation !== undefined) {
    process.env["MUTATION"] = mutation;
    await import("./mutate.ts");
  }
  const { playOne } = await import("./runner/single-play.ts");
  return (await playOne(play)) ? 0 : 1;
}

async function playMany(options: Options, range: { readonly from: number; readonly count: number }): Promise<number> {
  const { ManyPlays } = await import("./runner/many-plays.ts");
  const plays = new ManyPlays(options, range);
  let isInterrupted = false;
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    // A second one ends this process as well: the watchdog of the pool ends the workers then.
    process.once(signal, () => {
      isInterrupted = true;
      plays.interrupt();
    });
  }
  const isFine = await plays.run();
  return isInterrupted ? 130 : isFine ? 0 : 1;
}

try {
  process.exitCode = await run(optionsOf(process.argv.slice(2)));
} catch (error) {
  if (!(error instanceof UsageError)) throw error;
  console.error(error.message);
  process.exitCode = 2;
}
