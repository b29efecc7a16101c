import { readFileSync } from "node:fs";
import tap from "tap";

import { Metrics } from "../../src/observability/metrics.ts";

const text = readFileSync(new URL("../../docs/metrics.md", import.meta.url), "utf8");

/** The rows of the first table: name, type, labels, help. */
const documented = [...text.matchAll(/^\| `(ksvm_[^`]+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$/gm)].map(
  ([, name, type, labels, help]) => ({ name, type, labels: labels?.trim(), help: help?.trim() }),
);

await tap.test("docs/metrics.md lists exactly the metrics that there are", async (t) => {
  const { registry } = new Metrics();
  const metrics = registry.getMetricsAsArray().map((metric) => {
    // prom-client has them, and its types do not say so.
    const { name, help, type, labelNames } = metric as unknown as Record<"name" | "help" | "type", string> & {
      readonly labelNames: readonly string[];
    };
    const labels = labelNames.filter((label) => label !== "le").map((label) => `\`${label}\``);
    return { name, type, labels: labels.join(", "), help };
  });
  t.same(documented, metrics);
});

await tap.test("the names follow the conventions of Prometheus", async (t) => {
  for (const { name = "", type } of documented) {
    t.equal(name.endsWith("_total"), type === "counter", name);
    t.notMatch(name, /_(ms|milliseconds|minutes|count|sum|bucket)(_|$)/);
  }
});
