import { renderTable } from "../src/cli/render/render-table.ts";
import type { MigrateBenchOptions } from "./migrate-options.ts";
import type { Measurement } from "./throughput.ts";

export interface ThroughputReport {
  readonly date: string;
  readonly kubernetes: string;
  readonly ksvm: string;
  /** Such as "2 x AMD EPYC". */
  readonly cpus: string;
  readonly options: MigrateBenchOptions;
  readonly measurements: readonly Measurement[];
}

const HEADER = [
  "WHO",
  "SECONDS",
  "OBJECTS/S",
  "FIRST WRITE S",
  "OBJECTS/S FROM THERE",
  "OWN CPU S",
  "OWN PEAK MIB",
  "APISERVER CPU S",
  "PRUNED",
  "LOAD BEFORE",
];

/** The report as a table with a line for each run. */
export function renderThroughputReport(report: ThroughputReport): string {
  const { objects, size } = report.options;
  const rows = report.measurements.map((run) => [
    run.who,
    run.seconds.toFixed(1),
    (objects / run.seconds).toFixed(0),
    run.firstWriteSeconds.toFixed(1),
    (objects / (run.seconds - run.firstWriteSeconds)).toFixed(0),
    run.own.cpuSeconds.toFixed(1),
    run.own.peakMegabytes.toFixed(0),
    run.apiserverCpuSeconds.toFixed(1),
    run.storedVersionsPruned ? "yes" : "no",
    run.loadBefore.toFixed(1),
  ]);
  const setting = `${objects} objects of ${size} bytes; API server, etcd and migrator share ${report.cpus}`;
  const versions = `Kubernetes ${report.kubernetes}, ksvm ${report.ksvm}, ${report.date.slice(0, 10)}`;
  return `${versions}\n${setting}\n\n${renderTable([HEADER, ...rows])}`;
}
