import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import t from "tap";
import { stringify } from "yaml";
import { storedVersionsOf } from "../crd.ts";
import { WEBHOOK_NAME } from "../../src/freeze/rule.ts";
import { readMetrics } from "../../src/apiservers/find.ts";
import { dashboardQueries, ruleFile } from "../docs/monitoring-objects.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { installSystem } from "../integration/migrations.ts";
import { TestKind } from "../integration/crd-fixture.ts";
import { freePort, ONLY_CUSTOM, spawnController, untilReady } from "../processes/replica.ts";
import { startProgram } from "../processes/program.ts";
import { ensurePrometheus } from "./prometheus.ts";

/** So many objects take seconds: scrapes see the run at work. */
const OBJECTS = 3_000;
/** Where nothing goes wrong, there is nothing to show. */
const EMPTY = [
  "Waiting for: sum by (reason)",
  "Trigger: sum by (what)",
  "Reviews per second: sum by (decision) (rate(ksvm_in_tree",
];

interface Answer<T> {
  readonly status: string;
  readonly error?: string;
  readonly data: T;
}

interface Series {
  readonly metric: Readonly<Record<string, string>>;
  readonly values: readonly (readonly [number, string])[];
}

interface LoadedGroup {
  readonly rules: readonly {
    readonly name: string;
    readonly health: string;
    readonly lastError?: string;
    readonly state?: string;
  }[];
}

const prometheus = await ensurePrometheus("prometheus");
const cluster = await Cluster.start(t);
await installSystem(cluster);
const startedAt = Date.now() / 1_000;
const replica = await spawnController(t, cluster, { webhookPort: await freePort(), flags: ONLY_CUSTOM });
await untilReady(replica);

const folder = t.testdir();
const listen = `127.0.0.1:${await freePort()}`;
const config = {
  global: { scrape_interval: "1s", scrape_timeout: "1s", evaluation_interval: "1s" },
  rule_files: ["rules.yaml"],
  scrape_configs: [
    {
      job_name: "ksvm-metrics",
      static_configs: [{ targets: [replica.healthAddress], labels: { pod: "ksvm-controller-0" } }],
    },
  ],
};
writeFileSync(join(folder, "prometheus.yml"), stringify(config));
writeFileSync(join(folder, "rules.yaml"), stringify(ruleFile()));
const flags = {
  "config.file": join(folder, "prometheus.yml"),
  "storage.tsdb.path": join(folder, "data"),
  "web.listen-address": listen,
  "log.level": "warn",
};
const server = startProgram(
  t,
  prometheus,
  Object.entries(flags).map(([name, value]) => `--${name}=${value}`),
  { stdout: "ignore" },
);

/** Asks the API of Prometheus. */
async function ask<T>(path: string, parameters: Readonly<Record<string, string>> = {}): Promise<Answer<T>> {
  const answer = await fetch(`http://${listen}/api/v1/${path}?${new URLSearchParams(parameters).toString()}`);
  return (await answer.json()) as Answer<T>;
}

/** What a query showed since the test began, as a panel of Grafana asks. */
function query(expr: string): Promise<Answer<{ readonly result: readonly Series[] }>> {
  const query = expr.replaceAll("$__rate_interval", "10s");
  return ask("query_range", { query, start: String(startedAt), end: String(Date.now() / 1_000), step: "1" });
}

const kind = new TestKind("watched");

await t.test("a Prometheus scrapes ksvm controller while it migrates a CRD", async () => {
  await eventually(
    async () => (await query('up{job="ksvm-metrics"} == 1').catch(() => undefined))?.data.result.length === 1,
    `Prometheus scrapes the replica:\n${server.stderr}`,
    60_000,
  );
  await cluster.createStale(kind, OBJECTS);
  const isPruned = async (): Promise<boolean> => storedVersionsOf(await cluster.crd(kind)).join() === "v1";
  await eventually(isPruned, `the CRD is migrated:\n${replica.log()}`, 120_000);
  await eventually(
    async () => {
      const { data } = await query('ksvm_migrations_completed_total{result="Succeeded"} == 1');
      return data.result.some(({ metric }) => metric["resource"] === kind.name);
    },
    "its end is scraped",
    30_000,
  );
  // Rates, and rules that read what other rules recorded, lag behind by a few scrapes.
  await sleep(5_000);
});

for (const { panel, expr } of dashboardQueries()) {
  await t.test(`${panel}: ${expr}`, async (t) => {
    const { status, error, data } = await query(expr);
    t.equal(status, "success", error ?? "");
    const isEmpty = EMPTY.some((start) => `${panel}: ${expr}`.startsWith(start));
    t.equal(data.result.length === 0, isEmpty, isEmpty ? "it shows nothing" : "it shows something");
  });
}

await t.test("the panels show what happened", async (t) => {
  const highest = async (expr: string): Promise<number> => {
    const { data } = await query(expr);
    return Math.max(...data.result.flatMap(({ values }) => values.map(([, value]) => Number(value))));
  };
  t.equal(await highest("sum(ksvm_leader)"), 1);
  t.equal(await highest(`sum(ksvm_objects_total{resource="${kind.name}",outcome="migrated"})`), OBJECTS);
  t.equal(await highest(`ksvm_stored_versions_stale{resource="${kind.name}"}`), 1);
  t.ok((await highest(`time() - ksvm_freeze_start_timestamp_seconds{resource="${kind.name}"}`)) > 0, "it was frozen");
  t.same((await query(`ksvm_objects_total{resource="${kind.name}",outcome="failed"}`)).data.result, []);
  const now = await ask<{ readonly result: readonly unknown[] }>("query", { query: "ksvm_stored_versions_stale" });
  t.same(now.data.result, [], "and is clean now");
});

await t.test("Prometheus evaluates every rule, and no alert fires over a migration that succeeds", async (t) => {
  const { data } = await ask<{ readonly groups: readonly LoadedGroup[] }>("rules");
  const rules = data.groups.flatMap((group) => group.rules);
  t.equal(rules.length, ruleFile().groups.flatMap((group) => group.rules).length);
  for (const { name, health, lastError = "", state = "inactive" } of rules) {
    t.equal(`${health} ${lastError}`.trim(), "ok", name);
    t.not(state, "firing", name);
  }
});

await t.test("API servers count the webhook's answers as the rules expect it", async (t) => {
  const lines: string[] = [];
  await readMetrics(cluster.api.kube, AbortSignal.timeout(30_000), (line) => lines.push(line));
  const counted = lines.filter((line) => line.startsWith("apiserver_admission_webhook_rejection_count{"));
  t.ok(
    counted.some((line) => line.includes(`name="${WEBHOOK_NAME}"`) && line.includes('error_type="no_error"')),
    counted.join("\n"),
  );
});
