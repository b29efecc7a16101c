import { eventLine } from "../render/document.ts";
import type { EncryptionEvidence, EncryptionFound } from "../../apiservers/encryption-evidence.ts";
import { systemClock } from "../../clock.ts";
import type { RunSettings } from "../../migrator/assemble-run.ts";
import { workBesideInTree } from "../../migrator/beside-in-tree.ts";
import type { Verification } from "../../verify/verification.ts";
import { verify } from "../../verify/verify.ts";
import { EXIT, type ExitCode, worstOf } from "../render/exit-codes.ts";
import { oneLine, printable } from "../render/printable.ts";
import { describeChangeAmong, describeVerifications, totalOf } from "../render/render-verification.ts";
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
  /** How the API servers encrypted at the end of each. */
  readonly #looks: (EncryptionFound | undefined)[] = [];

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
    const change = describeChangeAmong(this.#looks);
    if (tried.size > 1) {
      const notDone = [...tried].filter((name) => !this.#done.has(name));
      this.#summarize(notDone, change);
    }
    return worstOf([change === undefined ? EXIT.done : EXIT.incomplete, ...codes]);
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
      this.#looks.push(encryption?.found);
      return verification.outcome === "current" ? EXIT.done : EXIT.incomplete;
    });
  }

  /** @param change why they are no statement about one and the same key */
  #summarize(notDone: readonly string[], change: string | undefined): void {
    const { format, io } = this.#session;
    const verifications = [...this.#done.values()];
    const line = {
      type: "summary",
      current: verifications.filter(({ outcome }) => outcome === "current").map(({ resource }) => resource),
      notCurrent: verifications.filter(({ outcome }) => outcome !== "current").map(({ resource }) => resource),
      notDone,
      counts: totalOf(verifications),
      isEncryptionMixed: change !== undefined,
      ...(change === undefined ? {} : { change }),
    };
    const text =
      format === "json"
        ? printable(eventLine(systemClock.now(), line))
        : oneLine([describeVerifications(verifications, notDone), change].filter(Boolean).join("; "));
    io.stdout.write(`${text}\n`);
  }
}
