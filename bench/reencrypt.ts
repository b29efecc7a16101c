// How long it takes to give every Secret a new key, by three tools: node bench/reencrypt.ts --help
import { cpus, loadavg } from "node:os";
import { parseArgs } from "node:util";

import { wholeNumber } from "../src/cli/flags/parsers.ts";
import { renderTable } from "../src/cli/render/render-table.ts";
import { programVersion } from "../src/cli/shared/version.ts";
import { readVersions } from "../test/control-plane/versions.ts";
import { ensureBinaries } from "../test/control-plane/binaries.ts";
import { EncryptedSecrets, withKeys } from "./encrypted-secrets.ts";
import { TOOLS } from "./reencrypt-tools.ts";
import { runScript, say } from "./run-script.ts";
import { withCluster } from "./with-cluster.ts";

const USAGE = `node bench/reencrypt.ts [options]
  --objects <list>         Secrets, a series of rounds for each number (1000,10000)
  --size <bytes>           of data in each (1000)
  --rounds <n>             in each, every tool runs once, after a rotation (3)
  --tool <name>            only this one; can be repeated (all: ${Object.keys(TOOLS).join("; ")})
  --program <file>         ksvm, compiled (dist/ksvm.js)
  -o, --output <format>    table or json (table)
  -h, --help               print this`;

interface Measurement {
  readonly objects: number;
  readonly tool: string;
  readonly seconds: number;
  /** The load average over one minute before it began: what else the machine was doing. */
  readonly loadBefore: number;
}

const { values } = parseArgs({
  options: {
    objects: { type: "string", default: "1000,10000" },
    size: { type: "string", default: "1000" },
    rounds: { type: "string", default: "3" },
    tool: { type: "string", multiple: true, default: Object.keys(TOOLS) },
    program: { type: "string", default: "dist/ksvm.js" },
    output: { type: "string", short: "o", default: "table" },
    help: { type: "boolean", short: "h", default: false },
  },
});

await runScript(async (interrupted) => {
  if (values.help) {
    console.log(USAGE);
    return;
  }
  const [numbers, rounds] = [
    values.objects.split(",").map(wholeNumber(1, 1_000_000)),
    wholeNumber(1, 100)(values.rounds),
  ];
  const size = wholeNumber(1, 1_000_000)(values.size);
  const tools = values.tool.map((name) => {
    const tool = TOOLS[name];
    if (tool === undefined) throw new Error(`Cannot run "${name}": choose from ${Object.keys(TOOLS).join("; ")}`);
    return { name, tool };
  });
  await ensureBinaries(["kubectl"]);
  await withCluster({ ...withKeys("key0"), signal: interrupted }, async (cluster, signal) => {
    const secrets = new EncryptedSecrets(cluster);
    const measurements: Measurement[] = [];
    for (const objects of numbers.toSorted((a, b) => a - b)) {
      say(`creating Secrets until there are ${objects}`);
      await secrets.growTo(objects, size);
      // One tool after the other in each round, so that whatever changes on the machine meets all of them.
      for (const { name, tool } of Array.from({ length: rounds }, () => tools).flat()) {
        await secrets.rotate(signal);
        const loadBefore = loadavg()[0] ?? 0;
        const seconds = await tool({ cluster, program: values.program, signal });
        await secrets.verify();
        measurements.push({ objects, tool: name, seconds, loadBefore });
        say(`${objects} Secrets, ${name}: ${seconds.toFixed(1)} s (load before ${loadBefore.toFixed(1)})`);
      }
    }
    const about = {
      date: new Date().toISOString(),
      kubernetes: readVersions().kubernetes,
      ksvm: programVersion(),
      cpus: `${cpus().length} x ${cpus()[0]?.model.trim()}`,
      size,
      rounds,
    };
    console.log(
      values.output === "json"
        ? JSON.stringify({ ...about, measurements }, undefined, 2)
        : tableOf(about, measurements),
    );
  });
});

function tableOf(
  about: Readonly<Record<"date" | "kubernetes" | "ksvm" | "cpus", string>> & { readonly size: number },
  measurements: readonly Measurement[],
): string {
  const keys = [...new Set(measurements.map(({ objects, tool }) => JSON.stringify([objects, tool])))];
  const rows = keys.map((key) => {
    const runs = measurements.filter(({ objects, tool }) => JSON.stringify([objects, tool]) === key);
    const [objects, tool] = JSON.parse(key) as [number, string];
    const all = runs.map(({ seconds }) => seconds);
    const loads = runs.map(({ loadBefore }) => loadBefore.toFixed(1));
    const median = medianOf(all);
    const each = all.map((seconds) => seconds.toFixed(1)).join(" ");
    return [String(objects), tool, median.toFixed(1), (objects / median).toFixed(0), each, loads.join(" ")];
  });
  const header = ["SECRETS", "TOOL", "MEDIAN S", "OBJECTS/S", "ALL RUNS S", "LOAD BEFORE"];
  const versions = `Kubernetes ${about.kubernetes}, ksvm ${about.ksvm}, ${about.date.slice(0, 10)}`;
  const setting = `Secrets of ${about.size} bytes; API server, etcd and tool share ${about.cpus}`;
  return `${versions}\n${setting}\n\n${renderTable([header, ...rows])}`;
}

function medianOf(numbers: readonly number[]): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  const [low = 0, high = 0] = [sorted[Math.floor((sorted.length - 1) / 2)], sorted[Math.floor(sorted.length / 2)]];
  return (low + high) / 2;
}
