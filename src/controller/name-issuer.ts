import { ensureCertificates } from "../certs/ensure.ts";
import type { CertificateTools, EnsureResult } from "../certs/ensure-options.ts";
import type { Clock } from "../clock.ts";
import { KsvmError } from "../errors.ts";
import { Retrier } from "../retry/retrier.ts";
import type { ReplicaOptions } from "./replica-options.ts";
import type { FailureLog } from "../observability/failure-log.ts";

/** For so long, in milliseconds, the replica that leads may take to issue a certificate for a name that is lacking. */
const LEADER_MS = 10_000;
/** Between two tries, in milliseconds: where two replicas want different names, each takes away what the other one issued. */
const TRY_AGAIN_MS = 60_000;
/** For so long, in milliseconds, one try waits for an API server. */
const PATIENCE_MS = 30_000;

/** What a {@link NameIssuer} needs. */
export interface NameIssuerOptions {
  readonly clock: Pick<Clock, "sleep">;
  /** Whether API servers cannot call what is served here by the name that they use. */
  readonly isLacking: () => boolean;
  /** Has the serving certificate issued for that name. */
  readonly issue: (signal: AbortSignal) => Promise<unknown>;
  readonly failures: Pick<FailureLog, "failed" | "worked">;
}

/**
 * Has a serving certificate issued for the name by which API servers call, where the replica that leads does not: during a rollout that changes
 * `--webhook-url`, that is one of before, which runs until this one is ready, and this one is not ready before it has such a certificate.
 */
export class NameIssuer {
  readonly #options: NameIssuerOptions;
  #work: Promise<void> | undefined;

  constructor(options: NameIssuerOptions) {
    this.#options = options;
  }

  /** Another certificate was taken into use. Nothing is issued once the signal is aborted. */
  loaded(signal: AbortSignal): void {
    if (this.#work === undefined && this.#options.isLacking()) {
      this.#work = this.#issueSoon(signal).finally(() => (this.#work = undefined));
    }
  }

  async #issueSoon(signal: AbortSignal): Promise<void> {
    const { clock, failures, isLacking, issue } = this.#options;
    for (let pauseMs = LEADER_MS; ; pauseMs = TRY_AGAIN_MS) {
      await clock.sleep(pauseMs, signal).catch(() => undefined);
      if (signal.aborted || !isLacking()) {
        return;
      }
      await issue(signal).then(
        () => failures.worked(),
        (error: unknown) => failures.failed(error),
      );
    }
  }
}

/** Takes the steps that are due. None that rests on all API servers: the replica that leads finds them, and goes on with the rotation. */
export function issueForNames(
  { client, clock, logger, settings }: ReplicaOptions,
  tools: CertificateTools,
  signal: AbortSignal,
): Promise<EnsureResult> {
  return ensureCertificates({
    ...tools,
    settings: settings.certificates,
    client,
    clock,
    logger,
    findApiServers: () =>
      Promise.reject(new KsvmError("NotConverged", "Cannot go on with a rotation: the replica that leads does")),
    retrier: new Retrier({ clock, random: Math.random, maxIdleMs: PATIENCE_MS }),
    signal,
  });
}
