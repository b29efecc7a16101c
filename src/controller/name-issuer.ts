import { ensureCertificates } from "../certs/ensure.ts";
import type { CertificateTools, EnsureResult } from "../certs/ensure-options.ts";
import type { Clock } from "../clock.ts";
import { KsvmError } from "../errors.ts";
import { Retrier } from "../old/retry/retrier.ts";
import type { ReplicaOptions } from "./replica-options.ts";
import type { FailureLog } from "../observability/failure-log.ts";

/** Milliseconds that the replica waits for the leader to issue a certificate for the name. */
const LEADER_MS = 10_000;
/** Milliseconds between two tries. */
const TRY_AGAIN_MS = 60_000;
/** Milliseconds that one try waits for an API server. */
const PATIENCE_MS = 30_000;

/** What a {@link NameIssuer} needs. */
export interface NameIssuerOptions {
  readonly clock: Pick<Clock, "sleep">;
  /** Whether API servers cannot call by the name that they use what this replica would serve. */
  readonly isLacking: () => boolean;
  /** Has the serving certificate issued for that name. */
  readonly issue: (signal: AbortSignal) => Promise<unknown>;
  readonly failures: Pick<FailureLog, "failed" | "worked">;
}

/**
 * Issues a serving certificate for the name by which API servers call, where the leader does not. During a rollout that changes `--webhook-url` the
 * leader still has the old URL: Kubernetes stops it once this replica is ready, and this replica is ready once it has such a certificate.
 */
export class NameIssuer {
  readonly #options: NameIssuerOptions;
  #work: Promise<void> | undefined;

  constructor(options: NameIssuerOptions) {
    this.#options = options;
  }

  /** The replica calls this when it has read the Secret. The issuer issues nothing once the signal is aborted. */
  offered(signal: AbortSignal): void {
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
        // A rotation that is under way is for the leader to go on with: what matters here is the name.
        (error: unknown) => (isLacking() ? failures.failed(error) : failures.worked()),
      );
    }
  }
}

/** Takes the steps that are due, but none that needs every API server: the leader finds them, and goes on with the rotation. */
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
