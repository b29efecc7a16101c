import { KsvmError } from "../../errors.ts";
import { check, type CheckEntry } from "../../inventory/upgrade.ts";
import { repeated } from "../flags/kinds.ts";
import { NO_OPERANDS } from "../flags/operands.ts";
import { anyText } from "../flags/parsers.ts";
import { RESULT_OUTPUT_FLAG } from "../flags/run-flags.ts";
import { EXIT, type ExitCode, worstOf } from "../render/exit-codes.ts";
import { printable } from "../render/printable.ts";
import { renderCheck } from "../render/render-check.ts";
import { defineCommand } from "../shared/command.ts";
import { connect } from "../shared/connect.ts";
import { readManifestFiles, readManifests } from "../shared/crd-files.ts";

const EXIT_CODES: Readonly<Record<CheckEntry["verdict"], ExitCode>> = {
  applicable: EXIT.done,
  unknown: EXIT.failed,
  "needs-migration": EXIT.needsMigration,
  refused: EXIT.wouldFail,
  "data-loss": EXIT.wouldFail,
};

/** `ksvm check`: shows whether CRD files can be applied; changes nothing. */
export const CHECK_COMMAND = defineCommand({
  path: "check",
  description: "Show whether CRDs in files can be applied, and what to do before, without changing anything.",
  examples: ["ksvm check -f crds/", "helm template --include-crds ./chart | ksvm check -f -"],
  operands: NO_OPERANDS,
  flags: {
    filename: repeated(anyText, {
      short: "f",
      placeholder: "path",
      help: "file or directory with CRDs as YAML or JSON, - for stdin; can be repeated",
    }),
    ...RESULT_OUTPUT_FLAG,
  },
  async run(io, { filename: paths = [], output, ...flags }) {
    if (paths.length === 0) {
      throw new KsvmError("Usage", "Cannot tell what to check: pass files with -f (- for stdin)");
    }
    const { crds, others } = readManifests(await readManifestFiles(paths, io));
    const connection = await connect(flags, io.signal);
    try {
      const items: CheckEntry[] = [];
      for (const file of crds) items.push(await check(connection.kube, file, io.signal));
      io.stdout.write(`${printable(renderCheck({ items, ignored: others }, output))}\n`);
      return worstOf(items.map(({ verdict }) => EXIT_CODES[verdict]));
    } finally {
      await connection.close();
    }
  },
});
