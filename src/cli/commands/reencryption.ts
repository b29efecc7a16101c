import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import type { Logger } from "pino";
import type { EncryptionEvidence } from "../../apiservers/encryption-evidence.ts";
import { waitForApiServers } from "../../apiservers/missing-api-server.ts";
import type { SeenServers } from "../../apiservers/seen-servers.ts";
import { systemClock } from "../../clock.ts";
import { KsvmError } from "../../errors.ts";
import { type AssembledRun, assembleRun } from "../../migrator/assemble-run.ts";
import { migrateBesideInTree } from "../../migrator/beside-in-tree.ts";
import type { MigrationResult } from "../../migrator/result.ts";
import type { FlagsOf } from "../flags/flag.ts";
import { type REENCRYPT_FLAGS, reencryptSettingsOf } from "./reencrypt-flags.ts";
import { EXIT, type ExitCode, worstOf } from "../render/exit-codes.ts";
import type { CliIo } from "../render/io.ts";
import { oneLine, printable } from "../render/printable.ts";
import {
  describeSummary,
  describeUnchanged,
  type ReencryptionSummary,
  summaryLine,
} from "../render/render-reencryption.ts";
import { exitCodeOf } from "../render/report-error.ts";
import { createReporter, type Reporter } from "../render/reporter.ts";
import type { Connection } from "../shared/connect.ts";
import { Verifications } from "./verifications.ts";

/** What the runs of one `ksvm reencrypt` share. */
export interface ReencryptionSession {
  readonly io: CliIo;
  readonly flags: FlagsOf<typeof REENCRYPT_FLAGS>;
  readonly connection: Connection;
  readonly logger: Logger;
  readonly seen: SeenServers;
  readonly encryption: EncryptionEvidence;
}

interface Done {
  readonly result: MigrationResult;
  /** How the API servers encrypted when it ended. */
  readonly fingerprint: string;
}

/** How often all resources are looked at again because the API servers changed their encryption in between. */
const MAX_ROUNDS = 5;
const EVERY_RESOURCE = "every resource";

/**
 * Re-encrypts resources, one after the other. What was rewritten before the API servers changed their encryption once more
 * may be encrypted with the former key: so all of them are compared at the end, and those are rewritten again.
 */
export class Reencryption {
  readonly #session: ReencryptionSession;
  readonly #done = new Map<string, Done>();
  readonly #codes = new Map<string, ExitCode>();

  constructor(session: ReencryptionSession) {
    this.#session = session;
  }

  /** @returns the exit code */
  async run(names: readonly string[]): Promise<ExitCode> {
    let code: ExitCode = EXIT.done;
    let encryption: string | undefined;
    if (names.length === 1) {
      await this.#round(names);
    } else {
      [code, encryption] = await this.#rounds(names);
      this.#summarize({
        results: [...this.#done.values()].map(({ result }) => result),
        notDone: names.filter((name) => !this.#done.has(name)),
        encryption,
      });
    }
    this.#noteUnchanged();
    return worstOf([code, ...this.#codes.values(), await this.#verify()]);
  }

  /** @returns what `--verify` comes to */
  async #verify(): Promise<ExitCode> {
    const { flags, ...session } = this.#session;
    if (!flags.verify || this.#done.size === 0) {
      return EXIT.done;
    }
    if (session.io.signal.aborted) {
      return EXIT.interrupted;
    }
    const verifications = new Verifications({ ...session, format: flags.output, settings: reencryptSettingsOf(flags) });
    return await verifications.run([...this.#done.keys()]);
  }

  /** All API servers may agree on the old configuration, because none of them has read the new one yet. */
  #noteUnchanged(): void {
    const { flags, io } = this.#session;
    const results = [...this.#done.values()].map(({ result }) => result);
    const unchanged = results.length === 0 ? undefined : describeUnchanged(results);
    if (unchanged !== undefined && flags.expectConfig === undefined) {
      io.stderr.write(
        `note: ${unchanged}. If you changed the configuration lately, API servers may not have read it yet: run again with ` +
          "--expect-config before you remove the old key\n",
      );
    }
  }

  async #rounds(names: readonly string[]): Promise<[code: ExitCode, encryption: string | undefined]> {
    const reporter = this.#reporterOf(EVERY_RESOURCE);
    try {
      let due = names;
      for (let round = 1; round <= MAX_ROUNDS; round++) {
        await this.#round(due);
        if (this.#done.size === 0 || this.#session.io.signal.aborted) {
          return [this.#endEarly(), undefined];
        }
        const { configHash, fingerprint } = await this.#lookAgain(reporter);
        due = [...this.#done].filter(([, done]) => done.fingerprint !== fingerprint).map(([name]) => name);
        if (due.length === 0) {
          return [EXIT.done, configHash];
        }
        for (const name of due) {
          this.#done.delete(name);
        }
        reporter.note(`the API servers changed their encryption since: again ${due.join(", ")}`);
      }
      throw new KsvmError(
        "NotConverged",
        "Cannot re-encrypt every resource: the API servers keep changing their encryption",
      );
    } catch (error) {
      reporter.error(error);
      this.#done.clear();
      return [exitCodeOf(error), undefined];
    }
  }

  /** Without the last look it is not known whether all that is done has one and the same key. */
  #endEarly(): ExitCode {
    this.#done.clear();
    return this.#session.io.signal.aborted ? EXIT.interrupted : EXIT.done;
  }

  async #round(names: readonly string[]): Promise<void> {
    for (const name of names) {
      const { aborted } = this.#session.io.signal;
      this.#codes.set(name, aborted ? EXIT.interrupted : await this.#reencrypt(name));
    }
  }

  async #reencrypt(name: string): Promise<ExitCode> {
    const { encryption, flags, logger } = this.#session;
    const reporter = this.#reporterOf(name);
    const log = logger.child({ resource: name });
    const run = this.#open(reporter, log);
    try {
      const result = await migrateBesideInTree(run.context, name, flags.webhookWaitMs);
      log.debug({ result }, "Run ended");
      reporter.result(result);
      const fingerprint = encryption.found?.fingerprint;
      if (result.outcome === "incomplete" || fingerprint === undefined) {
        return EXIT.incomplete;
      }
      this.#done.set(name, { result, fingerprint });
      return EXIT.done;
    } catch (error) {
      log.debug({ err: error }, "Run failed");
      reporter.error(error);
      return exitCodeOf(error);
    } finally {
      await run.close();
    }
  }

  async #lookAgain(reporter: Reporter): Promise<{ readonly configHash: string; readonly fingerprint: string }> {
    const { encryption, logger } = this.#session;
    const run = this.#open(reporter, logger);
    try {
      await waitForApiServers(run.context);
      return await encryption.look(run.context, EVERY_RESOURCE);
    } finally {
      await run.close();
    }
  }

  #open(reporter: Reporter, log: Logger): AssembledRun {
    const { connection, encryption, flags, io, seen } = this.#session;
    const shared = { ...connection, ...reencryptSettingsOf(flags), clock: systemClock, seen };
    return assembleRun(shared, {
      dryRun: false,
      force: true,
      encryption,
      identity: `${hostname()}_${randomUUID()}`,
      purpose: "ksvm reencrypt",
      emit: (event) => {
        log.debug({ event }, "Run event");
        reporter.event(event);
      },
      signal: io.signal,
    });
  }

  #reporterOf(name: string): Reporter {
    const { flags, io } = this.#session;
    return createReporter(io, name, { format: flags.output, clock: systemClock });
  }

  #summarize(summary: ReencryptionSummary): void {
    const { flags, io } = this.#session;
    const text =
      flags.output === "json"
        ? printable(JSON.stringify({ time: new Date(systemClock.now()).toISOString(), ...summaryLine(summary) }))
        : oneLine(describeSummary(summary));
    io.stdout.write(`${text}\n`);
  }
}
