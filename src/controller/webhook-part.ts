import { join } from "node:path";
import type { Logger } from "pino";
import { caBundleOf, publishedBundleOf, trustingPart, withOwnCas } from "../certs/ca-bundle.ts";
import { FileSource } from "../certs/file-source.ts";
import { PublishedTrust } from "../certs/published-trust.ts";
import {
  certificatesIn,
  decoded,
  isFilledByAnother,
  isPairOfItsOwn,
  KEYS,
  type SecretObject,
} from "../certs/secret-contents.ts";
import { SecretLosses } from "../certs/secret-losses.ts";
import { SecretSource } from "../certs/secret-source.ts";
import { ServerClock } from "../certs/server-clock.ts";
import { hostIn, serverNameOf } from "../certs/service-names.ts";
import { distrustOf } from "../certs/trust-chain.ts";
import type { Clock } from "../clock.ts";
import type { Client } from "../kube/client.ts";
import type { KubeObject } from "../kube/objects.ts";
import { FailureLog } from "../observability/failure-log.ts";
import type { Loop, Loops } from "../observability/loops.ts";
import type { Metrics } from "../observability/metrics.ts";
import type { Waker } from "../waker.ts";
import { purposeProblemOf } from "../serving/certificates.ts";
import { VALIDATE_PATH } from "../webhook/app.ts";
import { ConfigurationKeeper } from "../webhook/configuration-keeper.ts";
import type { ProgressOf } from "../webhook/review.ts";
import { startWebhookServer, type WebhookServer } from "../webhook/server.ts";
import { type CertificateSource, ServingCertificate } from "../webhook/serving-certificate.ts";
import { type WebhookConfiguration, webhookConfigurationOf } from "../webhook/webhook-configuration.ts";
import type { ServingSettings } from "./settings.ts";

/** What a {@link WebhookPart} needs. */
export interface WebhookPartOptions {
  readonly client: Client;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly settings: Pick<ServingSettings, "certificates" | "webhook">;
  readonly progressOf: ProgressOf;
  readonly loops: Pick<Loops<"configuration" | "serving-certificate">, "add">;
  /** Woken where the Secret that ksvm keeps has lost its certificates, or is older than it was. */
  readonly lost: Pick<Waker, "wake">;
  /** Has the serving certificate issued for all names that this process knows. */
  readonly issue: (signal: AbortSignal) => Promise<unknown>;
}

/** What every replica does for the freeze: it serves the webhook and keeps its configuration and its certificate. */
export class WebhookPart {
  readonly #options: WebhookPartOptions;
  /** API servers judge the certificate by their clocks. */
  readonly #serverClock: ServerClock;
  readonly #certificate: ServingCertificate;
  readonly #losses: SecretLosses;
  readonly #secret: ServedSecret;
  readonly #trust: PublishedTrust;
  readonly #source: CertificateSource;
  readonly #keeper: ConfigurationKeeper;
  readonly #configuration: Loop;
  readonly #serving: Loop;
  readonly #failures: FailureLog;
  #server: WebhookServer | undefined;
  /** Whether it has a certificate issued for the name by which API servers call. */
  #isIssuing = false;
  /**
   * Aborted once it was told to stop. A replica that ends goes on watching, and writes nothing: what uninstalls it deletes
   * what it keeps.
   */
  #signal = new AbortController().signal;

  constructor(options: WebhookPartOptions) {
    const { client, clock: ownClock, logger, loops, settings } = options;
    this.#options = options;
    this.#configuration = loops.add("configuration");
    this.#serving = loops.add("serving-certificate");
    const { clock } = this.#configuration;
    this.#serverClock = new ServerClock(client, ownClock);
    const times = (): readonly number[] => this.#serverClock.times();
    const { certificates, webhook } = settings;
    // The DNS name or IP address by which API servers call.
    const serverName = webhook.url === undefined ? serverNameOf(certificates) : hostIn(webhook.url);
    this.#certificate = new ServingCertificate({ times, serverName });
    this.#losses = new SecretLosses(serverName);
    this.#secret = new ServedSecret(this.#certificate, serverName, times);
    // The roots of API servers' own machines may trust a URL that users chose, hardly the name of a Service.
    const isBundleOptional = webhook.certificates === "files" && webhook.url !== undefined;
    this.#trust = new PublishedTrust({ certificate: this.#certificate, isBundleOptional, serverName, times, logger });
    this.#keeper = new ConfigurationKeeper({
      client,
      clock,
      logger,
      wanted: (live) => this.#wanted(live),
      // A replica that is behind would put an old CA bundle in the place of a new one.
      freshen: async (signal) => this.#source.look?.(signal),
      observer: this.#trust,
    });
    this.#failures = new FailureLog({
      clock: ownClock,
      logger,
      failing: "Cannot have a certificate issued for the name by which API servers call; trying again",
      working: "The certificates can be kept again",
    });
    this.#source = this.#sourceOf(settings);
  }

  /** Why no reviews are to be sent here; `undefined` where they are welcome. */
  ready(): string | undefined {
    return this.#server === undefined ? "the server has not started" : this.#server.ready();
  }

  /**
   * Serves until the signal is aborted, and drains then. What watches the certificate and the configuration ends when the
   * last review was answered.
   * @throws {KsvmError} ListenFailed where the address cannot be had.
   */
  async run(signal: AbortSignal): Promise<void> {
    const { drainMs, host, port } = this.#options.settings.webhook;
    const server = await startWebhookServer({
      ...this.#options,
      certificate: this.#certificate,
      lacking: () => this.#trust.lacking(),
      host,
      port,
      drainMs,
    });
    this.#server = server;
    this.#signal = signal;
    this.#options.logger.info({ url: server.url }, "Serving the webhook");
    const drained = new AbortController();
    const aborted = Promise.withResolvers<void>();
    signal.addEventListener("abort", () => aborted.resolve(), { once: true });
    if (signal.aborted) aborted.resolve();
    await Promise.all([
      aborted.promise.then(() => server.close()).finally(() => drained.abort()),
      this.#serving.keep(() => this.#source.run(drained.signal), drained.signal),
      this.#configuration.keep(() => this.#keeper.run(drained.signal), drained.signal),
    ]);
  }

  #sourceOf({ certificates, webhook }: WebhookPartOptions["settings"]): CertificateSource {
    const { client, logger, lost } = this.#options;
    const shared = {
      certificate: this.#certificate,
      clock: this.#serving.clock,
      logger,
      serverClock: this.#serverClock,
    };
    if (webhook.certificates === "files") {
      const [certFile, keyFile] = [join(webhook.certDir, "tls.crt"), join(webhook.certDir, "tls.key")];
      return new FileSource({ ...shared, certFile, keyFile });
    }
    const ref = { namespace: certificates.namespace, name: certificates.secret };
    if (webhook.certificates === "secret") return new SecretSource({ ...shared, client, ref });
    // A pair that was turned down may be taken later, without another word of the Secret.
    this.#certificate.subscribe(({ result }) => {
      if (result !== "loaded") return;
      this.#secret.loaded();
      this.#keeper.refresh();
    });
    return new SecretSource({
      ...shared,
      client,
      ref,
      // A pair that the Secret itself contradicts takes the place of no other one.
      isForeign: isFilledByAnother,
      isWhole: isPairOfItsOwn,
      onSecret: (secret) => this.#saw(secret),
      onOlder: () => lost.wake(),
    });
  }

  #saw(secret: SecretObject | undefined): void {
    const hasOtherCas = this.#secret.saw(secret);
    if (this.#losses.isLost(secret, this.#serverClock.now())) this.#options.lost.wake();
    if (hasOtherCas) this.#keeper.refresh();
    if (this.#secret.lacksName && !this.#isIssuing) void this.#issueSoon();
  }

  /**
   * Issues a serving certificate for the name by which API servers call, where the leader does not. During a rollout that
   * changes `--webhook-url` the leader still has the old URL: Kubernetes stops it once this replica is ready, and this
   * replica is ready once it has such a certificate.
   */
  async #issueSoon(): Promise<void> {
    const { clock, issue } = this.#options;
    this.#isIssuing = true;
    for (let pauseMs = LEADER_ISSUES_MS; ; pauseMs = ISSUE_AGAIN_MS) {
      await clock.sleep(pauseMs, this.#signal).catch(() => undefined);
      if (this.#signal.aborted || !this.#secret.lacksName) break;
      await issue(this.#signal).then(
        () => this.#failures.worked(),
        // A rotation that is under way is for the leader to go on with: what matters here is the name.
        (error: unknown) => (this.#secret.lacksName ? this.#failures.failed(error) : this.#failures.worked()),
      );
    }
    this.#isIssuing = false;
  }

  /**
   * The caBundle of a pair that another program keeps is its owner's business: cert-manager's cainjector writes it, or an
   * administrator. While the Secret has no CA, replicas may know different ones, and none of them knows which is the
   * newest: each adds its own to what is there. The same holds while the Secret has another pair than what is served here,
   * as where an old copy of it was restored: what keeps the certificates takes CAs away once it has repaired them.
   */
  #wanted(live: KubeObject | undefined): WebhookConfiguration | undefined {
    if (this.#signal.aborted) return undefined;
    const { certificates, webhook } = this.#options.settings;
    const { namespace, service: name } = certificates;
    const service = { namespace, name, path: VALIDATE_PATH, port: 443 };
    const clientConfig = webhook.url === undefined ? { service } : { url: webhook.url };
    if (webhook.certificates !== "own") return webhookConfigurationOf({ clientConfig });
    const caBundle = this.#secret.bundleFor(publishedBundleOf(live));
    return caBundle === undefined ? undefined : webhookConfigurationOf({ clientConfig: { ...clientConfig, caBundle } });
  }
}

/** Milliseconds that the replica waits for the leader to issue a certificate for the name, and between two tries. */
const LEADER_ISSUES_MS = 10_000;
const ISSUE_AGAIN_MS = 60_000;

/**
 * The Secret that ksvm keeps, as a replica reads it, beside what the replica serves. Both are the same as a rule. They are
 * not while the Secret is empty or broken, or has a pair that the replica turns down: then the replica goes on serving
 * what it had, and API servers have to go on trusting the CA of that.
 */
class ServedSecret {
  readonly #certificate: Pick<ServingCertificate, "current">;
  readonly #serverName: string;
  readonly #times: () => readonly number[];
  /** That of the Secret as it was read last with a CA; base64, as the configuration has it. */
  #caBundle: string | undefined;
  /** The certificate of the Secret as it was read last; empty where it has none. */
  #certPem = "";
  /** The last one of a Secret by which API servers can call what is served. */
  #trusting = "";

  /** @param times the same moment by every clock that is known, in milliseconds since the Unix epoch */
  constructor(certificate: Pick<ServingCertificate, "current">, serverName: string, times: () => readonly number[]) {
    this.#certificate = certificate;
    this.#serverName = serverName;
    this.#times = times;
  }

  /**
   * Takes note of the Secret, once its pair was offered.
   * @returns whether its CAs are others than before
   */
  saw(secret: SecretObject | undefined): boolean {
    const caBundle = caBundleOf(secret);
    this.#certPem = secret === undefined ? "" : decoded(secret, KEYS.certificate);
    const isOther = caBundle !== undefined && caBundle !== this.#caBundle;
    this.#caBundle = caBundle ?? this.#caBundle;
    this.loaded();
    return isOther;
  }

  /** Takes note of another pair in use. */
  loaded(): void {
    if (this.#caBundle !== undefined && this.#isTrustedBy(this.#caBundle)) this.#trusting = this.#caBundle;
  }

  /** Whether API servers cannot call by the name that they use what the Secret holds; where it holds no certificate, what is served. */
  get lacksName(): boolean {
    const [certificate] = certificatesIn(this.#certPem || (this.#certificate.current?.certPem ?? ""));
    return certificate !== undefined && purposeProblemOf(certificate.toString(), this.#serverName) !== undefined;
  }

  /**
   * The `caBundle` to publish. While what is served is not what the Secret holds, or API servers cannot call that, no CA is
   * taken away: other replicas may serve what it signed. That of what is served is added.
   *
   * @param published `undefined` where the configuration has no webhook of ours
   * @returns `undefined` as long as no CA was read
   */
  bundleFor(published: string | undefined): string | undefined {
    const own = this.#caBundle;
    const isServed = this.#certificate.current?.certPem === this.#certPem;
    if (own === undefined || (isServed && !this.lacksName && this.#isTrustedBy(own))) return own;
    const isNeeded = (caBundle: string): boolean => this.#isTrustedBy(caBundle);
    return [own, trustingPart(this.#trusting, isNeeded)].reduce(withOwnCas, published ?? "");
  }

  /** Whether API servers with this caBundle can call what is served, by any of the clocks. */
  #isTrustedBy(caBundle: string): boolean {
    const { current } = this.#certificate;
    if (current === undefined) return false;
    return this.#times().some((now) => distrustOf({ caBundle, certPem: current.certPem, now }) === undefined);
  }
}
