// How fast, at which size, at what cost, and what others notice: node bench/suite/main.ts --help
import { cpus, loadavg, totalmem } from "node:os";
import { parseArgs } from "node:util";
import { programVersion } from "../../src/cli/shared/version.ts";
import { readVersions } from "../../test/control-plane/versions.ts";
import { bundle } from "../../tools/build.ts";
import { runScript, say } from "../run-script.ts";
import type { Part } from "./arena.ts";
import { PARTS } from "./parts.ts";
import { PEER_SOURCE } from "./peer.ts";
import { type PartResult, renderResult } from "./report.ts";

const USAGE = `node bench/suite/main.ts [--part <name>]...
  --part <name>   ${PARTS.map(({ name }) => name).join(", ")} (all but those of make bench-million)
  -h, --help      print this
Each part prints a table. ${PEER_SOURCE} names the folder with the sources of
kube-storage-version-migrator, with the folder vendor; without it its rows say so.`;

await runScript(async (signal) => {
  const { values } = parseArgs({
    options: {
      part: { type: "string", multiple: true, default: [] },
      help: { type: "boolean", short: "h", default: false },
    },
  });
  if (values.help) {
    console.log(USAGE);
    return;
  }
  const parts = chosen(values.part);
  const program = await bundle();
  const peerSource = process.env[PEER_SOURCE];
  for (const part of parts) {
    say(`\n${part.title}`);
    const [startedAt, loadBefore] = [performance.now(), loadavg()[0] ?? 0];
    const rows = await part.run({ program, peerSource: peerSource === "" ? undefined : peerSource, signal });
    const result: PartResult = {
      title: part.title,
      about: part.about,
      date: new Date().toISOString(),
      kubernetes: readVersions().kubernetes,
      ksvm: programVersion(),
      node: process.version,
      machine: `${cpus().length} x ${cpus()[0]?.model.trim()}, ${Math.round(totalmem() / 2 ** 30)} GiB`,
      loadBefore,
      minutes: Number(((performance.now() - startedAt) / 60_000).toFixed(1)),
      rows,
    };
    console.log(renderResult(result));
  }
});

function chosen(names: readonly string[]): readonly Part[] {
  if (names.length === 0) return PARTS.filter(({ isLong = false }) => !isLong);
  return names.map((name) => {
    const part = PARTS.find((one) => one.name === name);
    if (part === undefined)
      throw new Error(`Cannot measure "${name}": choose from ${PARTS.map((one) => one.name).join(", ")}`);
    return part;
  });
}
