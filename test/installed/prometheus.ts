import { ensureGoProgram } from "./go-program.ts";

/** What the tests of deploy/components/monitoring run. */
export type PrometheusProgram = "prometheus" | "promtool";

/**
 * Builds prometheus or promtool: without its web pages, which need npm, and without service discovery, for which the tests have no use.
 * @returns its absolute path
 * @throws {Error} where Go cannot build it
 */
export function ensurePrometheus(name: PrometheusProgram): Promise<string> {
  const module = "github.com/prometheus/prometheus";
  return ensureGoProgram({ name, folder: "prometheus", module, package: `cmd/${name}`, tags: "remove_all_sd" });
}
