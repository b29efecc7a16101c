import { writeFile } from "node:fs/promises";
import { KsvmError, messageOf } from "../../errors.ts";
import { parseEvidence } from "../../report/parse-evidence.ts";
import { reportOf } from "../../report/report.ts";
import { readReportFacts } from "../../report/report-facts.ts";
import { optional, repeated } from "../flags/kinds.ts";
import { anyNames } from "../flags/operands.ts";
import { anyText } from "../flags/parsers.ts";
import { EXIT } from "../render/exit-codes.ts";
import type { CliIo } from "../render/io.ts";
import { oneLine } from "../render/printable.ts";
import { renderReport } from "../render/report/render-report.ts";
import { defineCommand } from "../shared/command.ts";
import { readTextFiles } from "../shared/read-manifest-files.ts";
import { withCluster } from "../shared/with-cluster.ts";
import { programVersion } from "../shared/version.ts";

/** Stands for stdout, as with curl. */
const STDOUT = "-";

/** `ksvm report`: writes an HTML page about how everything is stored, what is to be done and what was done; changes nothing. */
export const REPORT_COMMAND = defineCommand({
  path: "report",
  description:
    "Write one HTML page for a change request: how every resource is stored, what migrations would do, what was done and proven, what failed and why.",
  examples: [
    "ksvm report --output-file report.html",
    "ksvm report widgets.example.com --evidence run.json --output-file report.html",
  ],
  operands: anyNames("plural.group of a CRD or a built-in resource; all resources if no name is given"),
  flags: {
    "output-file": optional(anyText, {
      placeholder: "path",
      help: "file to write the page to, - for stdout; if not set, stdout unless that is a terminal",
    }),
    evidence: repeated(anyText, {
      placeholder: "path",
      help:
        "file with what ksvm migrate, reencrypt or verify printed with -o json, or a directory of .json files, - for stdin; can be " +
        "repeated",
    }),
  },
  async run(io, { evidence: paths = [], outputFile, ...flags }, names) {
    const path = pathOf(outputFile, io);
    const texts = await readTextFiles(paths, io, "EvidenceInvalid");
    const evidence = texts.flatMap(parseEvidence);
    const facts = await withCluster(io, flags, (context) => readReportFacts(context, names));
    await write(renderReport(reportOf({ ...facts, evidence }), programVersion()), path, io);
    return EXIT.done;
  },
});

/** @throws {KsvmError} Usage where the page would fill a terminal, and no flag asks for that. */
function pathOf(given: string | undefined, { stdout }: CliIo): string {
  if (given === undefined && stdout.isTTY === true) {
    throw new KsvmError(
      "Usage",
      "Cannot show an HTML page on a terminal: pass --output-file with a path (- prints it here)",
    );
  }
  return given ?? STDOUT;
}

async function write(page: string, path: string, { stderr, stdout }: CliIo): Promise<void> {
  if (path === STDOUT) {
    stdout.write(page);
    return;
  }
  try {
    await writeFile(path, page);
  } catch (error) {
    throw new KsvmError("OutputFailed", `Cannot write ${path}: ${messageOf(error)}`, { cause: error });
  }
  stderr.write(`${oneLine(`wrote ${path}`)}\n`);
}
