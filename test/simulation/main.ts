import { availableParallelism } from "node:os";
import { parseArgs } from "node:util";
import { type Play, type Played, play, playOfSeed, playSeeds, savedPlans } from "./runner.ts";
import { sabotageNamed } from "./sabotages.ts";
import type { Sabotage } from "./world/world.ts";

// make simulate: plays one seed or plan with its trace (SEED=…, PLAN=…), or many seeds in worker processes (SEEDS=…, FROM=…), and says
// which of them break something; with SABOTAGE=…, in the worlds of its aim. Exit codes: 0 nothing broke, 1 something did, 2 wrong usage, 130 Ctrl-C.

const FLAGS = { seed: "", plan: "", sabotage: "", from: "1", seeds: "1000", workers: `${availableParallelism()}` };
type Values = Record<keyof typeof FLAGS, string>;

function valuesOf(args: readonly string[]): Values {
  const entries = Object.entries(FLAGS).map(([name, value]) => [name, { type: "string", default: value }] as const);
  return parseArgs({ args: [...args], options: Object.fromEntries(entries) }).values as Values;
}

function numberOf(name: keyof Values, values: Values): number {
  if (!/^\d{1,10}$/.test(values[name]))
    throw new Error(`${name.toUpperCase()} has to be a whole number: "${values[name]}"`);
  return Number(values[name]);
}

function planNamed(name: string): Play {
  const plans = savedPlans();
  const found = plans.find((one) => one.name === `PLAN=${name}`);
  if (found === undefined)
    throw new Error(`there is no plan "${name}"; there are:\n${plans.map((one) => one.name).join("\n")}`);
  return found;
}

async function playOne(one: Play, sabotage: Sabotage | undefined): Promise<number> {
  console.log(JSON.stringify(one.plan, undefined, 1));
  const { elapsedMs, requests, trace, violations } = await play(one, sabotage);
  console.log("The trace: seconds since the world was set up, the revision of etcd, who, what.");
  for (const line of trace) console.log(line);
  const minutes = Math.round(elapsedMs / 60_000);
  const fine = `nothing broke (${requests} requests, ${minutes} simulated minutes)`;
  console.log(violations.length === 0 ? fine : `BROKEN: ${violations.join("; ")}`);
  return violations.length === 0 ? 0 : 1;
}

async function playMany(values: Values, sabotage: Sabotage | undefined): Promise<number> {
  const [from, count, workers] = [numberOf("from", values), numberOf("seeds", values), numberOf("workers", values)];
  const interrupt = new AbortController();
  process.once("SIGINT", () => interrupt.abort());
  let [done, broken, requests, toldAt] = [0, 0, 0, performance.now()];
  const startedAt = performance.now();
  const seconds = (): number => (performance.now() - startedAt) / 1_000;
  const onPlayed = ({ name, requests: sent, violations }: Played): void => {
    done++;
    requests += sent;
    if (violations.length > 0 && ++broken <= 20) console.log(`${name}: ${violations[0]}`);
    if (performance.now() - toldAt < 10_000) return;
    toldAt = performance.now();
    console.error(`${done} of ${count} seeds, ${(done / seconds()).toFixed(1)} a second, ${broken} broken`);
  };
  const seeds = Array.from({ length: count }, (_, index) => from + index);
  await playSeeds(seeds, { workers, sabotage, signal: interrupt.signal, onPlayed });
  console.log(`${done} seeds in ${seconds().toFixed(0)} s: ${broken} broken, ${requests} requests`);
  return interrupt.signal.aborted ? 130 : broken > 0 ? 1 : 0;
}

async function run(args: readonly string[]): Promise<number> {
  let one: Play | undefined;
  let sabotage: Sabotage | undefined;
  let values: Values;
  try {
    values = valuesOf(args);
    if (values.sabotage !== "") sabotage = sabotageNamed(values.sabotage);
    if (values.seed !== "") one = playOfSeed(numberOf("seed", values), sabotage);
    if (values.plan !== "") one = planNamed(values.plan);
  } catch (error) {
    console.error((error as Error).message);
    return 2;
  }
  return one === undefined ? playMany(values, sabotage) : playOne(one, sabotage);
}

process.exitCode = await run(process.argv.slice(2));
