import { systemClock } from "../../clock.ts";
import { KsvmError } from "../../errors.ts";
import type { CheckVerdict } from "../../plan/check-types.ts";
import { CHECK_PATIENCE, checkManifests } from "../../plan/check-facts.ts";
import { readManifests } from "../../plan/crd-manifests.ts";
import type { ReleaseVerdict } from "../../plan/release/check-release.ts";
import { knownRelease } from "../../resources/known-versions.ts";
import { checkControlPlane } from "../../plan/release/release-facts.ts";
import type { CallContext } from "../../retry/call-context.ts";
import { Retrier } from "../../retry/retrier.ts";
import { optional, repeated } from "../flags/kinds.ts";
import { NO_OPERANDS } from "../flags/operands.ts";
import { anyText, parseRelease } from "../flags/parsers.ts";
import { RESULT_OUTPUT_FLAG, type ResultFormat } from "../flags/run-flags.ts";
import { EXIT, type ExitCode, worstOf } from "../render/exit-codes.ts";
import type { CliIo } from "../render/io.ts";
import { printable } from "../render/printable.ts";
import { renderCheck } from "../render/render-check.ts";
import { renderRelease } from "../render/render-release.ts";
import { defineCommand } from "../shared/command.ts";
import { connect } from "../shared/connect.ts";
import { readManifestFiles } from "../shared/read-manifest-files.ts";

const EXIT_CODES: Readonly<Record<CheckVerdict, ExitCode>> = {
  applicable: EXIT.done,
  unknown: EXIT.failed,
  "needs-migration": EXIT.needsMigration,
  "two-steps": EXIT.needsMigration,
  refused: EXIT.wouldFail,
  "data-loss": EXIT.wouldFail,
};

const RELEASE_EXIT_CODES: Readonly<Record<ReleaseVerdict, ExitCode>> = {
  readable: EXIT.done,
  unknown: EXIT.failed,
  "needs-migration": EXIT.needsMigration,
  "data-loss": EXIT.wouldFail,
};

/** What a check prints, and its exit code. */
type Outcome = readonly [text: string, code: ExitCode];

/** `ksvm check`: shows whether CRD files can be applied, or another release be installed; changes nothing. */
export const CHECK_COMMAND = defineCommand({
  path: "check",
  description:
    "Show whether CRDs in files can be applied, or the control plane be upgraded or downgraded, and what to do before, without changing anything.",
  examples: [
    "ksvm check -f crds/",
    "helm template --include-crds ./chart | ksvm check -f -",
    "ksvm check --control-plane 1.35",
  ],
  operands: NO_OPERANDS,
  flags: {
    filename: repeated(anyText, {
      short: "f",
      placeholder: "path",
      help: "file or directory with CRDs as YAML or JSON, - for stdin; can be repeated",
    }),
    "control-plane": optional(parseRelease, {
      placeholder: "release",
      help: "release of Kubernetes, such as 1.35, that is asked whether it can read the objects of built-in resources",
    }),
    ...RESULT_OUTPUT_FLAG,
  },
  async run(io, { controlPlane, filename: paths = [], output, ...flags }) {
    if ((paths.length === 0) === (controlPlane === undefined)) {
      const text = "pass files with -f (- for stdin), or a release with --control-plane";
      throw new KsvmError("Usage", `Cannot tell what to check: ${text}`);
    }
    const check = controlPlane === undefined ? await fileCheck(paths, output, io) : releaseCheck(controlPlane, output);
    const connection = await connect(flags, io.signal);
    try {
      const retrier = new Retrier({ clock: systemClock, random: Math.random, ...CHECK_PATIENCE });
      const [text, code] = await check({ client: connection.client, retrier, signal: io.signal });
      io.stdout.write(`${printable(text)}
`);
      return code;
    } finally {
      await connection.close();
    }
  },
});

async function fileCheck(
  paths: readonly string[],
  output: ResultFormat,
  io: CliIo,
): Promise<(context: CallContext) => Promise<Outcome>> {
  const { crds, others } = readManifests(await readManifestFiles(paths, io));
  return async (context) => {
    const items = await checkManifests(context, crds);
    const code = worstOf(items.map(({ verdict }) => EXIT_CODES[verdict]));
    return [renderCheck({ items, ignored: others }, output), code];
  };
}

function releaseCheck(asked: string, output: ResultFormat): (context: CallContext) => Promise<Outcome> {
  const release = knownRelease(asked);
  return async (context) => {
    const check = await checkControlPlane(context, release);
    return [renderRelease(check, output), worstOf(check.items.map(({ verdict }) => RELEASE_EXIT_CODES[verdict]))];
  };
}
