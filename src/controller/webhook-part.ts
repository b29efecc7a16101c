import { join } from "node:path";
import { WEBHOOK_NAME } from "../api/names.ts";
import { publishedBundleOf } from "../certs/ca-bundle.ts";
import type { CertificateSource } from "../certs/certificate-source.ts";
import { FileSource } from "../certs/file-source.ts";
import { PublishedTrust } from "../certs/published-trust.ts";
import { isFilledByAnother, isPairOfItsOwn, type SecretObject } from "../certs/secret-contents.ts";
import { SecretLosses } from "../certs/secret-losses.ts";
import { SecretSource } from "../certs/secret-source.ts";
import type { KubeObject } from "../old/kube/client.ts";
import { ServerClock } from "../old/kube/server-clock.ts";
import { FailureLog } from "../observability/failure-log.ts";
import type { Loop, Loops } from "../observability/loops.ts";
import type { Waker } from "../old/retry/waker.ts";
import { VALIDATE_PATH } from "../webhook/app.ts";
import { ConfigurationKeeper } from "../webhook/configuration-keeper.ts";
import type { ProgressOf } from "../old/freeze/freeze-rule.ts";
import { startWebhookServer, type WebhookServer, type WebhookServerOptions } from "../webhook/server.ts";
import { ServingCertificate } from "../webhook/serving-certificate.ts";
import {
  type WebhookClientConfig,
  type WebhookConfiguration,
  webhookConfigurationOf,
} from "../webhook/webhook-configuration.ts";
import { calledName } from "./called-name.ts";
import { NameIssuer } from "./name-issuer.ts";
import type { WebhookLoop } from "./replica-loops.ts";
import type { ReplicaOptions } from "./replica-options.ts";
import { ServedSecret } from "./served-secret.ts";
import type { ServingSettings } from "./settings.ts";

/** A replica serves from the Secret that ksvm keeps, and no pair in the place of another one that the Secret itself contradicts. */
const OWN_SECRET = { isForeign: isFilledByAnother, isWhole: isPairOfItsOwn };

/** What a {@link WebhookPart} needs. */
export interface WebhookPartOptions extends Pick<ReplicaOptions, "client" | "clock" | "logger" | "metrics"> {
  readonly settings: Pick<ServingSettings, "certificates" | "webhook">;
  readonly progressOf: ProgressOf;
  readonly loops: Pick<Loops<WebhookLoop>, "add">;
  /** Woken where the Secret that ksvm keeps has lost its certificates, as in {@link SecretLosses}, or is older than it was. @default nobody */
  readonly lost?: Pick<Waker, "wake">;
  /** Has the serving certificate issued for all names that this process knows. @default another process does */
  readonly issue?: (signal: AbortSignal) => Promise<unknown>;
  /** Begins to listen. @default {@link startWebhookServer} */
  readonly startServer?: (options: WebhookServerOptions) => Promise<WebhookServer>;
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
  readonly #issuer: NameIssuer | undefined;
  #server: WebhookServer | undefined;
  /** Aborted once it was told to stop. */
  #signal = new AbortController().signal;
  /** A replica that ends goes on watching, and writes nothing: what uninstalls it deletes what it keeps. */
  #isEnding = (): boolean => false;

  constructor(options: WebhookPartOptions) {
    const { client, logger, loops, settings } = options;
    this.#options = options;
    this.#configuration = loops.add("configuration");
    this.#serving = loops.add("serving-certificate");
    const { clock } = this.#configuration;
    this.#serverClock = new ServerClock(client, options.clock);
    const times = (): readonly number[] => this.#serverClock.times();
    const serverName = calledName(settings);
    this.#certificate = new ServingCertificate({ times, serverName });
    this.#losses = new SecretLosses(serverName);
    this.#secret = new ServedSecret({ certificate: this.#certificate, serverName, times });
    // The roots of API servers' own machines may trust a URL that users chose, hardly the name of a Service.
    const isBundleOptional = settings.webhook.certificates === "files" && settings.webhook.url !== undefined;
    this.#trust = new PublishedTrust({
      certificate: this.#certificate,
      isBundleOptional,
      serverName,
      times,
      logger,
    });
    this.#keeper = new ConfigurationKeeper({
      client,
      clock,
      logger,
      wanted: (live) => this.#wanted(live),
      // A replica that is behind would put an old CA bundle in the place of a new one.
      freshen: async (signal) => this.#source.look?.(signal),
      observer: this.#trust,
    });
    this.#issuer = this.#issuerOf(options);
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
    const { startServer = startWebhookServer } = this.#options;
    const server = await startServer({
      ...this.#options,
      certificate: this.#certificate,
      lacking: () => this.#trust.lacking(),
      host,
      port,
      drainMs,
    });
    this.#server = server;
    this.#signal = signal;
    this.#isEnding = () => signal.aborted;
    this.#options.logger.info({ url: server.url }, "Serving the webhook");
    const drained = new AbortController();
    const stopped = new Promise<void>((resolve) => {
      signal.addEventListener("abort", () => resolve(), { once: true });
      if (signal.aborted) {
        resolve();
      }
    })
      .then(() => server.close())
      .finally(() => drained.abort());
    await Promise.all([
      stopped,
      this.#serving.keep(() => this.#source.run(drained.signal), drained.signal),
      this.#configuration.keep(() => this.#keeper.run(drained.signal), drained.signal),
    ]);
  }

  #sourceOf({ certificates, webhook }: WebhookPartOptions["settings"]): CertificateSource {
    const { client, logger } = this.#options;
    const { clock } = this.#serving;
    const shared = { certificate: this.#certificate, clock, logger };
    if (webhook.certificates === "files") {
      const [certFile, keyFile] = [join(webhook.certDir, "tls.crt"), join(webhook.certDir, "tls.key")];
      return new FileSource({ ...shared, certFile, keyFile, serverClock: this.#serverClock });
    }
    const ref = { namespace: certificates.namespace, name: certificates.secret };
    const fromSecret = { ...shared, client, ref, serverClock: this.#serverClock };
    if (webhook.certificates === "secret") {
      return new SecretSource(fromSecret);
    }
    const onSecret = (secret: SecretObject | undefined): void => this.#publish(secret);
    const onOlder = (): void => this.#options.lost?.wake();
    // A pair that was turned down may be taken later, without another word of the Secret.
    this.#certificate.subscribe(({ result }) => {
      if (result === "loaded") {
        this.#secret.loaded();
        this.#keeper.refresh();
      }
    });
    return new SecretSource({ ...fromSecret, ...OWN_SECRET, onSecret, onOlder });
  }

  #issuerOf({ clock, issue, logger }: WebhookPartOptions): NameIssuer | undefined {
    const failures = new FailureLog({
      clock,
      logger,
      failing: "Cannot have a certificate issued for the name by which API servers call; trying again",
      working: "The certificates can be kept again",
    });
    return issue && new NameIssuer({ clock, issue, isLacking: () => this.#secret.lacksName, failures });
  }

  #publish(secret: SecretObject | undefined): void {
    const hasOtherCas = this.#secret.saw(secret);
    if (this.#losses.isLost(secret, this.#serverClock.now())) {
      this.#options.lost?.wake();
    }
    if (hasOtherCas) {
      this.#keeper.refresh();
    }
    this.#issuer?.offered(this.#signal);
  }

  /**
   * The caBundle of a pair that another program keeps is its owner's business: cert-manager's cainjector writes it, or an administrator. While the
   * Secret has no CA, replicas may know different ones, and none of them knows which is the newest: each adds its own to what is there. The same holds
   * while the Secret has another pair than what is served here, as where an old copy of it was restored: what keeps the certificates takes CAs away once it
   * has repaired them.
   */
  #wanted(live: KubeObject | undefined): WebhookConfiguration | undefined {
    if (this.#isEnding()) {
      return undefined;
    }
    if (this.#options.settings.webhook.certificates !== "own") {
      return webhookConfigurationOf({ clientConfig: this.#clientConfig() });
    }
    const clientConfig = this.#clientConfig();
    const caBundle = this.#secret.bundleFor(publishedBundleOf(live, WEBHOOK_NAME));
    return caBundle === undefined ? undefined : webhookConfigurationOf({ clientConfig: { ...clientConfig, caBundle } });
  }

  #clientConfig(): WebhookClientConfig {
    const { certificates, webhook } = this.#options.settings;
    const { namespace, service: name } = certificates;
    if (webhook.url === undefined) {
      return { service: { namespace, name, path: VALIDATE_PATH, port: 443 } };
    }
    return { url: webhook.url };
  }
}
