import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { systemClock } from "../../clock.ts";
import { KsvmError } from "../../errors.ts";
import type { MigrationEnd, MigrationResult } from "../../migrator/types.ts";
import { configurationOf, encryptionEvidence } from "../../reencrypt/evidence.ts";
import { EVERY_RESOURCE, reencrypt } from "../../reencrypt/reencrypt.ts";
import type { FlagsOf } from "../flags/flag.ts";
import { anyNames } from "../flags/operands.ts";
import type { GLOBAL_FLAGS } from "../flags/global-flags.ts";
import { REENCRYPT_FLAGS } from "../flags/reencrypt-flags.ts";
import { runSettingsOf, settleWarning } from "../flags/run-settings.ts";
import { eventLine } from "../render/document.ts";
import { EXIT, type ExitCode, worstOf } from "../render/exit-codes.ts";
import type { CliIo } from "../render/io.ts";
import { oneLine, printable } from "../render/printable.ts";
import { describeSummary, describeUnchanged, summaryLine } from "../render/render-reencryption.ts";
import { exitCodeOf } from "../render/report-error.ts";
import { type Chosen, chooseResources, requireOneChoice } from "../shared/choose-resources.ts";
import { defineCommand } from "../shared/command.ts";
import { type Connection, connect } from "../shared/connect.ts";
import { loggerOf } from "../shared/logger-of.ts";
import { reportFor, type ResourceReport } from "../shared/resource-run.ts";

const WORDS = { verb: "re-encrypt", risk: "need the old key" };

/** Why there is another round, before the names. */
const WHY_AGAIN = {
  changed: "since then an API server may have come, gone or changed its encryption: again",
  appeared: "not among the resources as they were listed first: now",
} as const;

/** `ksvm reencrypt`: rewrites every object of the resources, with evidence that every API server uses the same key. */
export const REENCRYPT_COMMAND = defineCommand({
  path: "reencrypt",
  description:
    "Rewrite every object after a change of the encryption at rest, once every API server is shown to use the same " +
    "configuration and key.",
  examples: [
    "ksvm reencrypt secrets configmaps",
    'ksvm reencrypt --all --expect-config "$(sha256sum < encryption.yaml | cut -d " " -f 1)"',
  ],
  operands: anyNames("plural.group of a CRD or a built-in resource"),
  flags: REENCRYPT_FLAGS,
  async run(io, flags, given) {
    requireOneChoice(flags, given, WORDS);
    if (flags.assumeConfigRolledOut && flags.expectConfig !== undefined) {
      throw new KsvmError(
        "Usage",
        "Cannot expect a configuration of API servers that are not asked: pass one of both flags",
      );
    }
    // A mistake is found before anything is sent.
    runSettingsOf(flags);
    const assumption = flags.assumeConfigRolledOut
      ? "no API server is asked which encryption configuration it uses: keep the old key until you have seen in etcd " +
        "that no object needs it"
      : undefined;
    for (const warning of [assumption, settleWarning(flags)]) {
      if (warning !== undefined) io.stderr.write(`warning: ${warning}\n`);
    }
    const connection = await connect(flags, io.signal);
    try {
      const chosen = await chooseResources(io, connection, { flags, given, words: WORDS });
      return worstOf([chosen.code, await rewriteAll(io, connection, chosen, flags)]);
    } finally {
      await connection.close();
    }
  },
});

type Flags = FlagsOf<typeof REENCRYPT_FLAGS> & FlagsOf<typeof GLOBAL_FLAGS>;

/** Re-encrypts resources, and shows how each of them ended and what is proven of all of them. */
async function rewriteAll(
  io: CliIo,
  { kube }: Connection,
  { listAgain, names }: Chosen,
  flags: Flags,
): Promise<ExitCode> {
  const { assumeConfigRolledOut, expectConfig: expectedConfig, output: format } = flags;
  const session = { format, io, logger: loggerOf(io, flags) };
  const reports = new Map<string, ResourceReport>();
  const reportOf = (name: string): ResourceReport => {
    const report = reports.get(name) ?? reportFor(session, name);
    reports.set(name, report);
    return report;
  };
  const ends = new Map<string, MigrationEnd>();
  const codes: ExitCode[] = [];
  let configuration: string | undefined;
  let proof: string | undefined;
  const onEnd = (end: MigrationEnd): void => {
    const { log, reporter } = reportOf(end.name);
    ends.set(end.name, end);
    // How long another round takes is its own.
    reports.delete(end.name);
    if ("error" in end) {
      log.debug({ err: end.error }, "Run failed");
      // Whatever a request says that was broken off.
      return reporter.error(io.signal.aborted ? io.signal.reason : end.error);
    }
    log.debug({ result: end.result }, "Run ended");
    const encryption = configurationOf(end.result.epoch);
    if (encryption !== configuration) reporter.note(`every API server encrypts with configuration ${encryption}`);
    configuration = encryption;
    reporter.result(end.result, "reencrypt");
  };
  try {
    proof = await reencrypt(kube, names, {
      ...runSettingsOf(flags),
      identity: `${hostname()}_${randomUUID()}`,
      evidence: assumeConfigRolledOut ? undefined : encryptionEvidence({ expectedConfig }),
      listAgain:
        listAgain &&
        (async () => {
          const again = await listAgain();
          codes.push(again.code);
          return again.names;
        }),
      signal: io.signal,
      onEvent: (event, name) => {
        const { log, reporter } = reportOf(name);
        log.debug({ event }, "Run event");
        reporter.event(event);
      },
      onEnd,
      onAgain: (again, why) => reportOf(EVERY_RESOURCE).reporter.note(`${WHY_AGAIN[why]} ${again.join(", ")}`),
    });
  } catch (error) {
    codes.push(exitCodeOf(error));
    reportOf(EVERY_RESOURCE).reporter.error(error);
  }

  const results: MigrationResult[] = [];
  for (const end of ends.values()) {
    if ("error" in end) codes.push(exitCodeOf(end.error));
    else if (end.result.outcome === "incomplete") codes.push(EXIT.incomplete);
    // Without the last look it is not known whether all of them have one and the same key.
    else if (proof !== undefined) results.push(end.result);
  }
  if (names.length > 1 || listAgain !== undefined) {
    const done = new Set(results.map(({ resource }) => resource));
    const notDone = [...new Set([...names, ...ends.keys()])].filter((name) => !done.has(name));
    const summary = { results, notDone, encryption: configurationOf(proof) };
    const line = (): string => printable(eventLine(systemClock.now(), summaryLine(summary)));
    io.stdout.write(`${format === "json" ? line() : oneLine(describeSummary(summary))}\n`);
  }
  // All API servers may agree on the old configuration, because none of them has read the new one yet.
  const unchanged = results.length === 0 ? undefined : describeUnchanged(results);
  if (unchanged !== undefined && expectedConfig === undefined) {
    io.stderr.write(
      `note: ${unchanged}. If you changed the configuration lately, API servers may not have read it yet: run again with ` +
        "--expect-config before you remove the old key\n",
    );
  }
  return worstOf(codes);
}
