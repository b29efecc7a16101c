import { findMutations, isAsStated } from "./mutations/find-mutations.ts";
import { mutationNamed } from "./mutations/mutation-named.ts";
import { resultText } from "./mutations/mutation-text.ts";
import { MUTATIONS } from "./mutations.ts";
import { optionsOf } from "./runner/play-options.ts";
import { UsageError } from "./runner/usage-error.ts";

// make simulate-mutations: plays each mutation of the code under test in the seed that it states, and with SEEDS each one, those that survive
// included, in so many seeds. Exit codes: 0 all are found, or survive, as they state; 1 some are not; 2 it cannot be played; 130 Ctrl-C.

async function run(args: readonly string[]): Promise<number> {
  const options = optionsOf(args);
  const { play, workers, mutation } = options;
  if (!("count" in play) || options.resume !== undefined)
    throw new UsageError("Only SEEDS, FROM, WORKERS and MUTATION are for mutations");
  const range = args.includes("--seeds") || args.includes("--from") ? play : undefined;
  const all = range === undefined ? MUTATIONS.filter(({ found }) => found !== undefined) : MUTATIONS;
  const mutations = mutation === undefined ? all : [mutationNamed(mutation)];
  const interrupt = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => interrupt.abort());
  let done = 0;
  const results = await findMutations(mutations, {
    workers,
    range,
    onResult: (result) => console.log(`${++done} of ${mutations.length}: ${resultText(result)}`),
    signal: interrupt.signal,
  });
  const wrong = results.filter((result) => !isAsStated(result)).length;
  const found = results.filter((result) => result.found !== undefined).length;
  console.log(`${found} of ${results.length} mutations are found; ${wrong} are not as they state`);
  if (interrupt.signal.aborted) return 130;
  return wrong === 0 ? 0 : 1;
}

try {
  process.exitCode = await run(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof UsageError)) throw error;
  console.error(error.message);
  process.exitCode = 2;
}
