import { NewestSeen } from "../api/newest-seen.ts";
import { type Clock, systemClock } from "../clock.ts";
import type { Client } from "../kube/client.ts";
import { isLater } from "../kube/objects.ts";
import { watch } from "../kube/watch.ts";
import { FailureLog } from "../observability/failure-log.ts";
import type {
  CertificateSource,
  ServingCertificate,
  ServingPair,
  SourceOptions,
} from "../webhook/serving-certificate.ts";
import { decoded, KEYS, type SecretObject } from "./secret-contents.ts";
import { readSecret, type SecretRef, secretsPath } from "./secret-store.ts";
import type { ServerClock } from "./server-clock.ts";

/** Options of {@link SecretSource}. */
export interface SecretSourceOptions extends SourceOptions {
  readonly certificate: Pick<ServingCertificate, "offer" | "current">;
  readonly client: Client;
  /** The Secret of `ksvm certs`, or one that cert-manager fills. */
  readonly ref: SecretRef;
  /** @default the clock of this machine */
  readonly clock?: Clock;
  /** Milliseconds between two looks beside the watch. @default {@link RESYNC_MS} */
  readonly resyncMs?: number;
  /** Told of the API server's clock with every answer. @default none */
  readonly serverClock?: Pick<ServerClock, "saw">;
  /** Told of every Secret that was read, as to keep the caBundle; of `undefined` where there is none. @default none */
  readonly onSecret?: (secret: SecretObject | undefined) => void;
  /** Whether a Secret is that of another owner: it changes nothing. @default none is */
  readonly isForeign?: (secret: SecretObject) => boolean;
  /** Whether a pair may take the place of another one, as far as its Secret tells. @default each may */
  readonly isWhole?: (secret: SecretObject) => boolean;
  /**
   * Told where the Secret is older than it was, as where etcd was restored from a backup: what it holds may be due, or
   * over.
   * @default none
   */
  readonly onOlder?: () => void;
}

/**
 * The Secret is read again this often beside the watch, in milliseconds: a watch may die without a word, and how long a
 * replica may go on serving an old certificate is what the dwell time of a rotation stands on.
 */
export const RESYNC_MS = 30_000;
/** Between two tries to watch what cannot be watched, in milliseconds. */
const RETRY_MS = 1_000;

/**
 * Serves from the Secret itself, read through the API: no kubelet in between that takes a minute to bring a new pair. A
 * Secret that does not exist yet is waited for. An answer that is older than one before it, as of an API server whose
 * watch cache is behind, changes nothing.
 */
export class SecretSource implements CertificateSource {
  readonly #options: SecretSourceOptions;
  readonly #clock: Clock;
  readonly #failures: FailureLog;
  readonly #newest = new NewestSeen();
  /** Whether the Secret itself had a pair, ever. */
  #hasPair = false;
  #toldMissing = false;
  /** The last resourceVersion at which the Secret was said to be another owner's. */
  #toldForeign: string | undefined = "";
  #signal = new AbortController().signal;
  /** What was turned down; it may be valid in a second. */
  #turnedDown: ServingPair | undefined;
  #offering: Promise<void> | undefined;

  constructor(options: SecretSourceOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#failures = new FailureLog({
      clock: this.#clock,
      logger: options.logger,
      failing: "Cannot read the Secret of the serving certificate; trying again",
      working: "Reading the Secret of the serving certificate again",
    });
  }

  async run(signal: AbortSignal): Promise<void> {
    this.#signal = signal;
    await Promise.all([
      this.#repeat(RETRY_MS, () => this.#watch(signal), signal),
      this.#repeat(this.#options.resyncMs ?? RESYNC_MS, () => this.look(signal), signal),
    ]);
    await this.#offering;
  }

  async #repeat(pauseMs: number, work: () => Promise<void>, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        await work();
      } catch (error) {
        if (!signal.aborted) {
          this.#failures.failed(error);
        }
      }
      await this.#clock.sleep(pauseMs, signal).catch(() => undefined);
    }
  }

  async #watch(signal: AbortSignal): Promise<void> {
    const { client, ref } = this.#options;
    // Without a resourceVersion the Secret as it is now comes first.
    const options = { resourceVersion: "", query: { fieldSelector: `metadata.name=${ref.name}` }, signal };
    for await (const event of watch<SecretObject>(client, secretsPath(ref.namespace), options)) {
      if (event.type === "ADDED" || event.type === "MODIFIED") {
        this.#take(event.object);
      }
    }
  }

  /** Reads the Secret. @throws {ApiError} */
  async look(signal: AbortSignal): Promise<void> {
    const sentAfter = this.#newest.resourceVersion;
    const { secret, serverTime } = await readSecret(this.#options.client, this.#options.ref, signal);
    this.#options.serverClock?.saw(serverTime);
    if (secret === undefined) {
      this.#options.onSecret?.(undefined);
      this.#tellMissing();
    } else {
      this.#take(secret, sentAfter);
      if (isOlder(secret, sentAfter)) this.#options.onOlder?.();
    }
  }

  /** Once: the program that keeps it may be installed later. */
  #tellMissing(): void {
    const { logger, ref } = this.#options;
    this.#failures.worked();
    if (!this.#toldMissing && !this.#hasPair) {
      logger.info({ secret: `${ref.namespace}/${ref.name}` }, "Waiting for the Secret of the serving certificate");
    }
    this.#toldMissing = true;
  }

  /** @param sentAfter as in {@link NewestSeen.take} */
  #take(secret: SecretObject, sentAfter?: string): void {
    this.#failures.worked();
    if (!this.#newest.take(secret.metadata.resourceVersion, sentAfter)) {
      return;
    }
    const hasPair = this.#serve(secret);
    this.#hasPair ||= hasPair;
  }

  /** @returns whether it has a pair, or is another owner's */
  #serve(secret: SecretObject): boolean {
    const { certificate, isForeign, isWhole, logger, onSecret, ref } = this.#options;
    if (isForeign?.(secret) === true) {
      const { resourceVersion } = secret.metadata;
      if (resourceVersion === this.#toldForeign) return true;
      this.#toldForeign = resourceVersion;
      logger.warn(
        { secret: `${ref.namespace}/${ref.name}` },
        "Another owner filled the Secret of the serving certificate; nothing of it is used",
      );
      return true;
    }
    const [certPem, keyPem] = [decoded(secret, KEYS.certificate), decoded(secret, KEYS.key)];
    // As long as the Secret is empty there is nothing to reject.
    const hasPair = certPem !== "" || keyPem !== "";
    if (hasPair && (certificate.current === undefined || isWhole?.(secret) !== false)) {
      this.#offer({ certPem, keyPem });
    }
    // In this order: what is published depends on what is served.
    onSecret?.(secret);
    return hasPair;
  }

  #offer(pair: ServingPair): void {
    const isKnown = this.#turnedDown?.certPem === pair.certPem;
    this.#turnedDown = this.#options.certificate.offer(pair) === undefined ? undefined : pair;
    if (this.#turnedDown !== undefined && !isKnown) {
      this.#offering ??= this.#offerAgain().finally(() => (this.#offering = undefined));
    }
  }

  /** Offers it a few times within half a minute; after that each look at the Secret does. */
  async #offerAgain(): Promise<void> {
    let pauseMs = RETRY_MS;
    for (let pair = this.#turnedDown; pair !== undefined && pauseMs < RESYNC_MS; pair = this.#turnedDown) {
      await this.#clock.sleep(pauseMs, this.#signal).catch(() => undefined);
      if (this.#signal.aborted || this.#turnedDown === undefined) {
        return;
      }
      // Another pair may have come in between, such as a renewal right after a renewal.
      pauseMs = this.#turnedDown.certPem === pair.certPem ? 2 * pauseMs : RETRY_MS;
      this.#offer(this.#turnedDown);
    }
  }
}

/** Whether a Secret is older than one that was read before, as where etcd was restored from a backup. */
function isOlder({ metadata: { resourceVersion } }: SecretObject, before: string | undefined): boolean {
  return before !== undefined && isLater(before, resourceVersion);
}
