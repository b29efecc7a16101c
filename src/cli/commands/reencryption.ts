import { eventLine } from "../render/document.ts";
import { ArrivalProofs } from "../../old/apiservers/arrival-proofs.ts";
import type { CountedArrivals } from "../../old/apiservers/arrivals.ts";
import type { EncryptionEvidence } from "../../old/apiservers/encryption-evidence.ts";
import { systemClock } from "../../clock.ts";
import { KsvmError } from "../../errors.ts";
import { migrateBesideInTree } from "../../old/migrator/beside-in-tree.ts";
import type { MigrationResult } from "../../old/migrator/result.ts";
import type { FlagsOf } from "../flags/flag.ts";
import { type REENCRYPT_FLAGS, reencryptSettingsOf } from "../flags/reencrypt-flags.ts";
import { EXIT, type ExitCode, worstOf } from "../render/exit-codes.ts";
import { oneLine, printable } from "../render/printable.ts";
import {
  describeSummary,
  describeUnchanged,
  type ReencryptionSummary,
  summaryLine,
} from "../render/render-reencryption.ts";
import type { Chosen } from "../shared/choose-resources.ts";
import { type ResourceReport, type ResourceRun, type RunSession, reportOn, withRun } from "../shared/resource-run.ts";
import { type Due, DueResources } from "./due-resources.ts";
import { type LastLook, lookAtLast } from "./last-look.ts";

/** What the runs of one `ksvm reencrypt` share. */
export interface ReencryptionSession extends RunSession {
  readonly flags: FlagsOf<typeof REENCRYPT_FLAGS>;
  readonly encryption: EncryptionEvidence;
}

/** What is rewritten. */
export type ToReencrypt = Pick<Chosen, "listAgain" | "names">;

interface Done {
  readonly result: MigrationResult;
  /** How the API servers encrypted when it ended. */
  readonly fingerprint: string;
  /** Shows the result, once it is proven. */
  readonly show: () => void;
}

/** How often all resources are looked at again because the API servers changed their encryption in between. */
const MAX_ROUNDS = 5;
const EVERY_RESOURCE = "every resource";
/** Why there is another round, before the names. */
const WHY_DUE = {
  changed: "since then an API server may have come, gone or changed its encryption: again",
  appeared: "not among the resources as they were listed first: now",
} as const satisfies Record<Due["why"], string>;

/**
 * Re-encrypts resources, one after the other. While it is waited for the proof that no API server came or went until the end of
 * one, the next one is rewritten already; its result is told after that proof. What was rewritten before the API servers changed their encryption once more
 * may be encrypted with the former key: so all of them are compared at the end, and those are rewritten again, as is what came since "all" was listed.
 */
export class Reencryption {
  readonly #session: ReencryptionSession;
  readonly #done = new Map<string, Done>();
  readonly #codes = new Map<string, ExitCode>();
  readonly #proofs: ArrivalProofs;

  constructor(session: ReencryptionSession) {
    this.#session = session;
    const { connection, io } = session;
    this.#proofs = new ArrivalProofs({ client: connection.client, signal: io.signal });
  }

  /** @returns the exit code */
  run(resources: ToReencrypt): Promise<ExitCode> {
    const { connection, io, seen } = this.#session;
    // Until the last look: one that joins between two resources may write to one that is done.
    return seen.arrivals.during(connection.client, () => this.#runAll(resources), io.signal);
  }

  async #runAll(resources: ToReencrypt): Promise<ExitCode> {
    const { listAgain, names } = resources;
    const due = new DueResources(resources);
    let code: ExitCode = EXIT.done;
    let encryption: string | undefined;
    if (names.length <= 1 && listAgain === undefined) {
      await this.#round(names, false);
    } else {
      [code, encryption] = await this.#rounds(names, due);
      this.#summarize({
        results: [...this.#done.values()].map(({ result }) => result),
        notDone: [...due.tried].filter((name) => !this.#done.has(name)),
        encryption,
      });
    }
    this.#noteUnchanged();
    return worstOf([code, due.code, ...this.#codes.values()]);
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

  async #rounds(
    names: readonly string[],
    dueResources: DueResources,
  ): Promise<[code: ExitCode, encryption: string | undefined]> {
    let encryption: string | undefined;
    let isAgreed = false;
    const code = await reportOn(this.#session, EVERY_RESOURCE, async (report) => {
      let due = names;
      for (let round = 1; round <= MAX_ROUNDS; round++) {
        await this.#round(due, true);
        if (this.#done.size === 0 || this.#session.io.signal.aborted) {
          return this.#session.io.signal.aborted ? EXIT.interrupted : EXIT.done;
        }
        const { configHash, fingerprint } = await this.#lookAgain(report);
        const next = await dueResources.after(fingerprint, this.#done);
        due = next.names;
        if (due.length === 0) {
          await this.#proofs.ended();
          for (const { show } of this.#done.values()) {
            show();
          }
          encryption = configHash;
          isAgreed = true;
          return EXIT.done;
        }
        for (const name of due) {
          this.#done.delete(name);
        }
        report.reporter.note(`${WHY_DUE[next.why]} ${due.join(", ")}`);
      }
      throw new KsvmError(
        "NotConverged",
        "Cannot re-encrypt every resource: API servers keep coming, going or changing their encryption",
      );
    });
    await this.#proofs.ended();
    if (!isAgreed) {
      // Without the last look it is not known whether all that is done has one and the same key.
      this.#done.clear();
    }
    return [code, encryption];
  }

  /** @param isLookedAgain whether it is looked once more after the last one */
  async #round(names: readonly string[], isLookedAgain: boolean): Promise<void> {
    for (const name of names) {
      const { aborted } = this.#session.io.signal;
      this.#codes.set(name, aborted ? EXIT.interrupted : await this.#reencrypt(name, isLookedAgain));
    }
  }

  #reencrypt(name: string, isLookedAgain: boolean): Promise<ExitCode> {
    const { encryption, flags } = this.#session;
    return reportOn(this.#session, name, async (report) => {
      let rested: CountedArrivals | undefined;
      const onRested = (counted: CountedArrivals): void => void (rested = counted);
      const run = { ...this.#run(), ...(isLookedAgain ? { onRested } : {}) };
      const result = await withRun(this.#session, report, run, (context) =>
        migrateBesideInTree(context, name, flags.webhookWaitMs),
      );
      report.log.debug({ result }, "Run ended");
      const show = once(() => report.reporter.result(result));
      const fingerprint = encryption.found?.fingerprint;
      if (result.outcome === "incomplete" || fingerprint === undefined) {
        show();
        return EXIT.incomplete;
      }
      this.#done.set(name, { result, fingerprint, show });
      if (rested === undefined) {
        show();
      } else {
        this.#proofs.add(rested, show);
      }
      return EXIT.done;
    });
  }

  #lookAgain(report: ResourceReport): Promise<LastLook> {
    return withRun(this.#session, report, this.#run(), (context) =>
      lookAtLast(context, this.#session.encryption, EVERY_RESOURCE),
    );
  }

  #run(): ResourceRun {
    const { encryption, flags } = this.#session;
    const settings = reencryptSettingsOf(flags);
    return { settings, dryRun: false, force: true, encryption, purpose: "ksvm reencrypt" };
  }

  #summarize(summary: ReencryptionSummary): void {
    const { flags, io } = this.#session;
    const text =
      flags.output === "json"
        ? printable(eventLine(systemClock.now(), summaryLine(summary)))
        : oneLine(describeSummary(summary));
    io.stdout.write(`${text}\n`);
  }
}

function once(work: () => void): () => void {
  let isDone = false;
  return () => {
    if (!isDone) {
      isDone = true;
      work();
    }
  };
}
