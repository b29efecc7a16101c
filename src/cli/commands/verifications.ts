import { eventLine } from "../render/document.ts";
import type { EncryptionEvidence } from "../../apiservers/encryption-evidence.ts";
import { systemClock } from "../../clock.ts";
import type { RunSettings } from "../../migrator/assemble-run.ts";
import { workBesideInTree } from "../../migrator/beside-in-tree.ts";
import type { Verification } from "../../verify/verification.ts";
import { verify } from "../../verify/verify.ts";
import { EXIT, type ExitCode, worstOf } from "../render/exit-codes.ts";
import { oneLine, printable } from "../render/printable.ts";
import { describeVerifications, totalOf } from "../render/render-verification.ts";
import type { Chosen } from "../shared/choose-resources.ts";
import { type RunSession, reportOn, withRun } from "../shared/resource-run.ts";

/** What the verifications of one command share. */
export interface VerificationSession extends RunSession {
  readonly settings: RunSettings;
  /** Missing where it is not looked at how the API servers encrypt. */
  readonly encryption?: EncryptionEvidence | undefined;
}

/** What is verified. Where it is everything, it is listed again at the end: a CRD may have come while API servers were waited for. */
export type ToVerify = Pick<Chosen, "listAgain" | "names">;

/** Verifies resources, one after the other. */
export class Verifications {
  readonly #session: VerificationSession;
  readonly #done = new Map<string, Verification>();
  readonly #fingerprints = new Set<string>();

  constructor(session: VerificationSession) {
    this.#session = session;
  }

  /** @returns the exit code */
  run(resources: ToVerify): Promise<ExitCode> {
    const { connection, io, seen } = this.#session;
    return seen.arrivals.during(connection.client, () => this.#verifyAll(resources), io.signal);
  }

  async #verifyAll({ names, listAgain }: ToVerify): Promise<ExitCode> {
    const codes = await this.#verifyEach(names);
    const tried = new Set(names);
    if (listAgain !== undefined && !this.#session.io.signal.aborted) {
      // Others have been verified by now: what comes after this list is stored as those are.
      const listed = await reportOn(this.#session, "every resource", async () => {
        const { code, names: all } = await listAgain();
        const appeared = all.filter((name) => !tried.has(name));
        appeared.forEach((name) => tried.add(name));
        return worstOf([code, ...(await this.#verifyEach(appeared))]);
      });
      codes.push(listed);
    }
    if (tried.size > 1) {
      this.#summarize([...tried].filter((name) => !this.#done.has(name)));
    }
    return worstOf([this.#fingerprints.size > 1 ? EXIT.incomplete : EXIT.done, ...codes]);
  }

  async #verifyEach(names: readonly string[]): Promise<ExitCode[]> {
    const { signal } = this.#session.io;
    const codes: ExitCode[] = [];
    for (const name of names) {
      codes.push(signal.aborted ? EXIT.interrupted : await this.#verify(name));
    }
    return codes;
  }

  #verify(name: string): Promise<ExitCode> {
    const { encryption, settings } = this.#session;
    const run = { settings, dryRun: false, force: true, encryption, purpose: "ksvm verify" };
    return reportOn(this.#session, name, async (report) => {
      const beside = { waitMs: settings.webhookWaitMs, work: verify };
      const verification = await withRun(this.#session, report, run, (context) =>
        workBesideInTree(context, name, beside),
      );
      report.log.debug({ verification }, "Run ended");
      report.reporter.verification(verification);
      this.#done.set(name, verification);
      this.#fingerprints.add(encryption?.found?.fingerprint ?? "");
      return verification.outcome === "current" ? EXIT.done : EXIT.incomplete;
    });
  }

  #summarize(notDone: readonly string[]): void {
    const { format, io } = this.#session;
    const verifications = [...this.#done.values()];
    const isMixed = this.#fingerprints.size > 1;
    const line = {
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
        ? printable(eventLine(systemClock.now(), line))
        : oneLine(`${describeVerifications(verifications, notDone)}${mixed}`);
    io.stdout.write(`${text}\n`);
  }
}
