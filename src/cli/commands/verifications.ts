import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import type { Logger } from "pino";
import type { EncryptionEvidence } from "../../apiservers/encryption-evidence.ts";
import type { SeenServers } from "../../apiservers/seen-servers.ts";
import { systemClock } from "../../clock.ts";
import { assembleRun, type RunSettings } from "../../migrator/assemble-run.ts";
import { workBesideInTree } from "../../migrator/beside-in-tree.ts";
import type { Verification } from "../../verify/verification.ts";
import { verify } from "../../verify/verify.ts";
import { EXIT, type ExitCode, worstOf } from "../render/exit-codes.ts";
import type { CliIo } from "../render/io.ts";
import { oneLine, printable } from "../render/printable.ts";
import { describeVerifications, totalOf } from "../render/render-verification.ts";
import { exitCodeOf } from "../render/report-error.ts";
import { createReporter, type MIGRATE_FORMATS } from "../render/reporter.ts";
import { toggle } from "../flags/kinds.ts";
import type { Connection } from "../shared/connect.ts";

/** `--verify`, for commands that rewrite. */
export const VERIFY_FLAG = {
  verify: toggle({
    help: "when all is done, verify each resource that was completed, as ksvm verify does; exit code 3 if an object was not current",
  }),
};

/** What the verifications of one command share. */
export interface VerificationSession {
  readonly io: CliIo;
  readonly format: (typeof MIGRATE_FORMATS)[number];
  readonly connection: Connection;
  readonly logger: Logger;
  readonly seen: SeenServers;
  readonly settings: RunSettings;
  /** Missing where it is not looked at how the API servers encrypt. */
  readonly encryption?: EncryptionEvidence | undefined;
}

/** Verifies resources, one after the other. */
export class Verifications {
  readonly #session: VerificationSession;
  readonly #done = new Map<string, Verification>();
  readonly #fingerprints = new Set<string>();

  constructor(session: VerificationSession) {
    this.#session = session;
  }

  /** @returns the exit code */
  async run(names: readonly string[]): Promise<ExitCode> {
    const { signal } = this.#session.io;
    const codes: ExitCode[] = [];
    for (const name of names) {
      codes.push(signal.aborted ? EXIT.interrupted : await this.#verify(name));
    }
    if (names.length > 1) {
      this.#summarize(names.filter((name) => !this.#done.has(name)));
    }
    return worstOf([this.#fingerprints.size > 1 ? EXIT.incomplete : EXIT.done, ...codes]);
  }

  async #verify(name: string): Promise<ExitCode> {
    const { connection, encryption, format, io, seen, settings } = this.#session;
    const reporter = createReporter(io, name, { format, clock: systemClock });
    const log = this.#session.logger.child({ resource: name });
    const shared = { ...connection, ...settings, clock: systemClock, seen };
    const run = assembleRun(shared, {
      dryRun: false,
      force: true,
      ...(encryption === undefined ? {} : { encryption }),
      identity: `${hostname()}_${randomUUID()}`,
      purpose: "ksvm verify",
      emit: (event) => {
        log.debug({ event }, "Run event");
        reporter.event(event);
      },
      signal: io.signal,
    });
    try {
      const verification = await workBesideInTree(run.context, name, { waitMs: settings.webhookWaitMs, work: verify });
      log.debug({ verification }, "Run ended");
      reporter.verification(verification);
      this.#done.set(name, verification);
      this.#fingerprints.add(encryption?.found?.fingerprint ?? "");
      return verification.outcome === "current" ? EXIT.done : EXIT.incomplete;
    } catch (error) {
      log.debug({ err: error }, "Run failed");
      reporter.error(error);
      return exitCodeOf(error);
    } finally {
      await run.close();
    }
  }

  #summarize(notDone: readonly string[]): void {
    const { format, io } = this.#session;
    const verifications = [...this.#done.values()];
    const isMixed = this.#fingerprints.size > 1;
    const line = {
      time: new Date(systemClock.now()).toISOString(),
      type: "summary",
      current: verifications.filter(({ outcome }) => outcome === "current").map(({ resource }) => resource),
      notCurrent: verifications.filter(({ outcome }) => outcome !== "current").map(({ resource }) => resource),
      notDone,
      counts: totalOf(verifications),
      isEncryptionMixed: isMixed,
    };
    const mixed = isMixed ? "; the API servers changed their encryption between two resources: run again" : "";
    const text =
      format === "json"
        ? printable(JSON.stringify(line))
        : oneLine(`${describeVerifications(verifications, notDone)}${mixed}`);
    io.stdout.write(`${text}\n`);
  }
}
