// How fast objects are migrated, and what that costs: node bench/migrate.ts --help
import { cpus } from "node:os";

import { programVersion } from "../src/cli/shared/version.ts";
import { readVersions } from "../test/control-plane/versions.ts";

import { parseMigrateBenchOptions, USAGE } from "./migrate-options.ts";
import { runScript, say } from "./run-script.ts";
import { StaleObjects } from "./stale-objects.ts";
import { type Bench, type Measurement, measureInTree, measureKsvm } from "./throughput.ts";
import { renderThroughputReport } from "./throughput-report.ts";
import { withCluster } from "./with-cluster.ts";

await runScript(async (interrupted) => {
  const options = parseMigrateBenchOptions(process.argv.slice(2));
  if (options === undefined) {
    console.log(USAGE);
    return;
  }
  await withCluster({ signal: interrupted }, async (cluster, signal) => {
    say(`creating ${options.objects} objects`);
    const stale = await StaleObjects.create(cluster, options);
    const bench: Bench = { cluster, stale, signal };
    const programs = options.programs.length === 0 ? [undefined] : options.programs;
    const measurements: Measurement[] = [];
    const add = (measurement: Measurement): void => {
      measurements.push(measurement);
      say(`${measurement.who}: ${measurement.seconds.toFixed(1)} s`);
    };
    for (let round = 0; round < options.rounds; round++) {
      for (const maxInFlight of options.maxInFlight) {
        for (const program of programs) add(await measureKsvm(bench, maxInFlight, program));
      }
    }
    // Last, so that no other run pays for the watch that its cache keeps on all objects.
    if (options.peers.includes("in-tree")) add(await measureInTree(bench));
    const report = {
      date: new Date().toISOString(),
      kubernetes: readVersions().kubernetes,
      ksvm: programVersion(),
      cpus: `${cpus().length} x ${cpus()[0]?.model.trim()}`,
      options,
      measurements,
    };
    console.log(options.output === "json" ? JSON.stringify(report, undefined, 2) : renderThroughputReport(report));
  });
});
