import { readFileSync } from "node:fs";
import tap from "tap";
import { parse, parseAllDocuments } from "yaml";
import { Metrics } from "../../src/observability/metrics.ts";
import { webhookConfigurationOf } from "../../src/webhook/webhook-configuration.ts";
import { allRules, dashboardQueries, monitoringFile } from "./monitoring-objects.ts";

const root = new URL("../../", import.meta.url);
const read = (path: string): string => readFileSync(new URL(path, root), "utf8");

/** Of API servers, which Kubernetes calls stable or beta: https://kubernetes.io/docs/reference/instrumentation/metrics/ */
const OF_API_SERVERS = [
  "apiserver_admission_webhook_rejection_count",
  "apiserver_admission_webhook_fail_open_count",
] as const;
/** What Prometheus adds to each sample. */
const OF_TARGETS = ["pod", "namespace", "job", "instance"];

interface Known {
  readonly labels: readonly string[];
}

/** The metrics of the program by the names of their samples, and what the rules record. */
function knownNames(): ReadonlyMap<string, Known> {
  const known = new Map<string, Known>();
  for (const metric of new Metrics().registry.getMetricsAsArray()) {
    const {
      name,
      type,
      labelNames: labels,
    } = metric as unknown as { name: string; type: string; labelNames: string[] };
    const names = type === "histogram" ? ["bucket", "sum", "count"].map((suffix) => `${name}_${suffix}`) : [name];
    names.forEach((one) => known.set(one, { labels: one.endsWith("_bucket") ? [...labels, "le"] : labels }));
  }
  for (const { record, labels = {} } of allRules()) {
    if (record !== undefined) known.set(record, { labels: Object.keys(labels) });
  }
  return known;
}

const known = knownNames();
const queries = [
  ...allRules().map(({ alert, record, expr }) => ({ where: alert ?? record ?? "", expr })),
  ...dashboardQueries().map(({ panel, expr }) => ({ where: panel, expr })),
];

/** The names in a query that no metric has, and the labels in it that its metrics do not have. */
function unknownIn(expr: string): readonly string[] {
  const names = [...expr.matchAll(/\b(?:ksvm|apiserver)[_:][a-z0-9_:]+/g)].map(([name]) => name);
  const strange = names.filter((name) => !known.has(name) && !(OF_API_SERVERS as readonly string[]).includes(name));
  const labels = [...expr.matchAll(/\b(ksvm[_:][a-z0-9_:]+)\{([^}]*)\}/g)].flatMap(([, name = "", matchers = ""]) =>
    [...matchers.matchAll(/([a-z_]+)(?:=~|!~|!=|=)"/g)]
      .map(([, label = ""]) => label)
      .filter((label) => known.get(name)?.labels.includes(label) === false)
      .map((label) => `${name}{${label}}`),
  );
  return [...strange, ...labels];
}

await tap.test("the rules and the dashboard name metrics, and labels, that there are", async (t) => {
  t.ok(queries.length > 0);
  for (const { where, expr } of queries) t.same(unknownIn(expr), [], where);
  const grouped = queries.flatMap(({ expr }) => [...expr.matchAll(/\bby \(([^)]*)\)/g)].map(([, names = ""]) => names));
  const labels = new Set([...known.values()].flatMap((one) => one.labels));
  for (const name of grouped.flatMap((names) => names.split(/,\s*/))) {
    t.ok(labels.has(name) || name === "le" || name === "name" || OF_TARGETS.includes(name), name);
  }
});

await tap.test("negative control: a name, or a label, that is none is found", async (t) => {
  t.same(unknownIn('sum(rate(ksvm_objects{resource="a"}[5m]))'), ["ksvm_objects"]);
  t.same(unknownIn("ksvm:slo_errors:ratio_2h"), ["ksvm:slo_errors:ratio_2h"]);
  t.same(unknownIn('ksvm_objects_total{result="failed"} + apiserver_requests'), [
    "apiserver_requests",
    "ksvm_objects_total{result}",
  ]);
});

const alerts = allRules().filter(({ alert }) => alert !== undefined);
const runbooks = read("docs/runbooks.md");
const headings = [...runbooks.matchAll(/^## (.+)$/gm)].map(([, heading = ""]) => heading);

await tap.test("every alert has a runbook, and every runbook an alert", async (t) => {
  t.same(
    headings,
    alerts.map(({ alert }) => alert),
  );
  for (const { alert = "", annotations = {} } of alerts) {
    t.equal(annotations["runbook_url"], `https://ksvm.sigs.k8s.io/runbooks#${alert.toLowerCase()}`, alert);
    t.ok(annotations["summary"] && annotations["description"], alert);
  }
});

await tap.test("the ServiceMonitor selects the Service of metrics, by the name of its port", async (t) => {
  interface Service {
    readonly kind: string;
    readonly metadata: { readonly name: string; readonly labels: Readonly<Record<string, string>> };
    readonly spec: { readonly ports: readonly { readonly name: string }[] };
  }
  const { spec } = parse(monitoringFile("service-monitor.yaml")) as {
    spec: { selector: { matchLabels: Record<string, string> }; endpoints: readonly { port: string }[] };
  };
  const services = parseAllDocuments(read("deploy/base/service.yaml"))
    .map((document) => document.toJS() as Service)
    .filter(({ kind }) => kind === "Service");
  const selected = services.filter(
    ({ metadata, spec: { ports } }) =>
      Object.entries(spec.selector.matchLabels).every(([key, value]) => metadata.labels[key] === value) &&
      ports.some(({ name }) => spec.endpoints.some(({ port }) => port === name)),
  );
  t.same(
    selected.map(({ metadata }) => metadata.name),
    ["ksvm-metrics"],
  );
});

await tap.test("the alert about calls of the webhook names the webhook that there is", async (t) => {
  const { webhooks } = webhookConfigurationOf({ clientConfig: { url: "https://localhost" } });
  const { expr = "" } = alerts.find((one) => one.alert === "KsvmWebhookUnreachable") ?? {};
  const selectors = [...expr.matchAll(/apiserver_admission_webhook_(\w+)\{name="([^"]+)"/g)];
  t.equal(selectors.length, 4);
  for (const [, metric, name] of selectors) t.same([metric, name], ["rejection_count", webhooks[0]?.["name"]]);
});
