import tap from "tap";
import { BodyBudget, type HeldBody } from "../../src/webhook/body-budget.ts";

function bodies(budget: BodyBudget) {
  const ended: string[] = [];
  const hold = (name: string, bytes: number, since: number, address = "10.0.0.1"): HeldBody => {
    const body = { address, bytes, since, end: () => void ended.push(name) };
    budget.add(body);
    return body;
  };
  return { ended, hold };
}

await tap.test("BodyBudget ends nothing as long as all bodies fit", (t) => {
  const budget = new BodyBudget(100);
  const { ended, hold } = bodies(budget);
  hold("old", 50, 0);
  hold("new", 50, 900);
  budget.keep(1_000);
  t.same(ended, []);
  t.end();
});

await tap.test("BodyBudget ends the body that has held the most memory for the longest time", (t) => {
  const budget = new BodyBudget(100);
  const { ended, hold } = bodies(budget);
  hold("stalled", 40, 0);
  hold("small and older", 1, 0);
  hold("larger and new", 60, 999);
  budget.keep(1_000);
  t.same(ended, ["stalled"]);
  hold("another", 60, 1_000);
  budget.keep(1_000);
  t.same(ended, ["stalled", "small and older", "larger and new"], "as many as it takes, at that moment");
  t.end();
});

await tap.test("BodyBudget forgets a body that was read", (t) => {
  const budget = new BodyBudget(100);
  const { ended, hold } = bodies(budget);
  budget.remove(hold("read", 100, 0));
  hold("new", 100, 1_000);
  budget.keep(1_000);
  t.same(ended, []);
  t.end();
});

await tap.test("BodyBudget ends a single body that is larger than all", (t) => {
  const budget = new BodyBudget(100);
  const { ended, hold } = bodies(budget);
  hold("alone", 101, 0);
  budget.keep(0);
  t.same(ended, ["alone"]);
  t.end();
});

await tap.test("BodyBudget ends no body of an address whose bodies hold less than those of another", (t) => {
  const budget = new BodyBudget(100);
  const { ended, hold } = bodies(budget);
  hold("of an API server", 30, 0);
  for (const name of ["small", "smaller", "smallest"]) hold(name, 25, 900, "10.0.0.2");
  budget.keep(1_000);
  t.same(ended, ["small"]);
  t.end();
});
