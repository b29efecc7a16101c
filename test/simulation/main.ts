import { parseArgs } from "node:util";
import { planOf } from "./plan-of.ts";
import { simulate } from "./simulate.ts";

// make simulate SEEDS=… SEED=…: plays one seed with its trace, or many and says which of them break something.

const { values } = parseArgs({
  options: {
    from: { type: "string", default: "1" },
    seeds: { type: "string", default: "1" },
    /** Ends at the first seed that breaks something. */
    stop: { type: "boolean", default: false },
  },
});
const [from, count] = [Number(values.from), Number(values.seeds)];
const startedAt = performance.now();
const totals = { requests: 0, events: 0, broken: 0, elapsedMs: 0 };
let seed = from;
for (; seed < from + count; seed++) {
  const outcome = await simulate(planOf(seed));
  totals.requests += outcome.requests;
  totals.events += outcome.events;
  totals.elapsedMs += outcome.elapsedMs;
  const [violation] = outcome.violations;
  if (count === 1) console.log(outcome.trace.join("\n"));
  if (violation !== undefined) {
    totals.broken++;
    console.log(`SEED=${seed}: ${violation}`);
    if (values.stop) break;
  }
  if (process.stderr.isTTY) process.stderr.write(`\r${seed - from + 1} of ${count} seeds, ${totals.broken} broken`);
}
const seconds = (performance.now() - startedAt) / 1_000;
const days = (totals.elapsedMs / 86_400_000).toFixed(1);
console.log(
  `${Math.min(count, seed - from + 1)} seeds in ${seconds.toFixed(1)} s: ${totals.broken} broken, ${days} days of cluster life, ` +
    `${totals.requests} requests, ${totals.events} events`,
);
process.exitCode = totals.broken === 0 ? 0 : 1;
