import { readFileSync } from "node:fs";
import { join } from "node:path";
import tap, { type Test } from "tap";
import { parse, stringify } from "yaml";
import { type ProgramEnd, RunningProgram } from "../processes/program.ts";
import { dashboardQueries, type Rule, type RuleFile, ruleFile } from "../docs/monitoring-objects.ts";
import { ensurePrometheus } from "./prometheus.ts";

interface Case {
  readonly name: string;
  readonly interval: string;
}

const { tests: CASES } = parse(readFileSync(join(import.meta.dirname, "prometheus/rules.test.yaml"), "utf8")) as {
  readonly tests: readonly Case[];
};

const promtool = await ensurePrometheus("promtool");

/** Runs promtool in a folder with the rules. */
function run(t: Test, rules: RuleFile, ...args: readonly string[]): Promise<ProgramEnd> {
  const cwd = t.testdir({ "rules.yaml": stringify(rules) });
  return new RunningProgram(promtool, args, { cwd, timeoutMs: 120_000 }).ended;
}

/** Runs cases, with evaluations as far apart as the samples of each: days in steps of a minute take long. */
function play(t: Test, rules: RuleFile, cases: readonly Case[]): Promise<ProgramEnd> {
  const files = [...new Set(cases.map(({ interval }) => interval))].map((interval) => {
    const tests = cases.filter((one) => one.interval === interval);
    return [
      `${interval}.yaml`,
      stringify({ rule_files: ["rules.yaml"], evaluation_interval: interval, tests }),
    ] as const;
  });
  const cwd = t.testdir({ "rules.yaml": stringify(rules), ...Object.fromEntries(files) });
  const args = ["test", "rules", ...files.map(([name]) => name)];
  return new RunningProgram(promtool, args, { cwd, timeoutMs: 120_000 }).ended;
}

/** The rules, each as `change` makes it. */
function changed(change: (rule: Rule) => Rule): RuleFile {
  return { groups: ruleFile().groups.map((group) => ({ ...group, rules: group.rules.map(change) })) };
}

await tap.test("promtool finds nothing wrong with the rules", async (t) => {
  const { code, stdout, stderr } = await run(
    t,
    ruleFile(),
    "check",
    "rules",
    "--lint=all",
    "--lint-fatal",
    "rules.yaml",
  );
  t.equal(code, 0, stdout + stderr);
});

await tap.test("promtool can parse every query of the dashboard", async (t) => {
  // What Grafana fills in.
  const exprs = dashboardQueries().map(({ expr }) => expr.replaceAll("$__rate_interval", "2m"));
  const rules = exprs.map((expr, index) => ({ record: `panel:${index}`, expr }));
  t.ok(rules.length > 25);
  const { code, stdout, stderr } = await run(
    t,
    { groups: [{ name: "panels", rules }] },
    "check",
    "rules",
    "rules.yaml",
  );
  t.equal(code, 0, stdout + stderr);
});

await tap.test("negative control: promtool finds a query that is none", async (t) => {
  const broken = changed((rule) => ({ ...rule, expr: `sum(${rule.expr}` }));
  t.not((await run(t, broken, "check", "rules", "rules.yaml")).code, 0);
});

await tap.test("each alert fires in its case, and is silent in the other", async (t) => {
  const { code, stdout, stderr } = await play(t, ruleFile(), CASES);
  t.equal(code, 0, stdout + stderr);
});

await tap.test("negative control: the cases tell an alert that never fires, and one that always does", async (t) => {
  const alerts = ruleFile().groups.flatMap(({ rules }) => rules.flatMap(({ alert }) => alert ?? []));
  t.ok(alerts.length > 10);
  for (const alert of alerts) {
    const cases = CASES.filter((one) => JSON.stringify(one).includes(alert));
    for (const expr of ["vector(1) < 0", "vector(1)"]) {
      const rules = changed((rule) => (rule.alert === alert ? { ...rule, expr } : rule));
      await t.test(`${alert}: ${expr}`, async (tt) => tt.not((await play(tt, rules, cases)).code, 0));
    }
  }
});
