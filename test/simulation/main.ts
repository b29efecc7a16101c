import { planOf } from "./plan.ts";
import { simulate } from "./simulate.ts";

const [first = "1", count = "1"] = process.argv.slice(2);
const startedAt = performance.now();
let requests = 0;
let events = 0;
const ends = new Map<string, number>();
for (let seed = Number(first); seed < Number(first) + Number(count); seed++) {
  const before = performance.now();
  const outcome = await simulate(planOf(seed));
  requests += outcome.requests;
  events += outcome.events;
  for (const end of outcome.ends) ends.set(end.slice(0, 60), (ends.get(end.slice(0, 60)) ?? 0) + 1);
  if (outcome.violations.length > 0)
    console.log(`SEED=${seed}: ${outcome.violations[0]} (${(performance.now() - before).toFixed(0)} ms)`);
  if (count === "1") console.log(outcome.trace.join("\n"));
}
const seconds = (performance.now() - startedAt) / 1_000;
console.log(`${count} seeds in ${seconds.toFixed(1)} s, ${requests} requests, ${events} events`);
for (const [end, times] of [...ends].toSorted((a, b) => b[1] - a[1]).slice(0, 30)) console.log(times, end);
