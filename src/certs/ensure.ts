import type { Logger } from "pino";
import type { Clock } from "../clock.ts";
import { KsvmError } from "../errors.ts";
import { isNamespaceMissing } from "../kube/absent.ts";
import { type ApiClient, isConflict } from "../kube/client.ts";
import { failureKindOf } from "../kube/failure.ts";
import type { ApiServers } from "../apiservers/api-servers.ts";
import { LoopPace } from "../retry/loop-pace.ts";
import type { Retrier } from "../retry/retrier.ts";
import { proveBundleSeen } from "./bundle-proof.ts";
import {
  type BundleHolder,
  bundleOf,
  findConfiguration,
  publishBundle,
  publishedBundleOf,
  trustsAll,
} from "./ca-bundle.ts";
import { askReplicas, findReplicas, type ReplicaAddress } from "./replicas.ts";
import { nextStep, type RotationStep, type RotationTiming } from "./rotation-plan.ts";
import { changeOf, type IssueOptions, type WritingStep } from "./rotation-writes.ts";
import {
  contentsOf,
  factsOf,
  isIssuedBy,
  type SecretContents,
  type SecretObject,
  SEEN_ANNOTATION,
  SWITCHED_ANNOTATION,
} from "./secret-contents.ts";
import { readSecret, type SecretChange, writeSecret } from "./secret-store.ts";
import { dnsNamesOf, ipAddressesOf } from "./service-names.ts";

/** How long API servers and replicas may take to follow by default, in milliseconds. */
export const DEFAULT_FOLLOW_TIMEOUT_MS = 300_000;

/** What is kept, and how. */
export interface CertificateSettings extends IssueOptions, RotationTiming {
  /** Name of the Secret, in the namespace of the Service. */
  readonly secret: string;
  /** Name of the ValidatingWebhookConfiguration. */
  readonly webhookConfiguration: string;
  /** Milliseconds that API servers and replicas may take to follow, where they are waited for. */
  readonly timeoutMs: number;
  /** Where the replicas listen. @default they are found by the Service's EndpointSlices */
  readonly replicaEndpoints?: readonly ReplicaAddress[] | undefined;
}

/** Options of {@link ensureCertificates}. */
export interface EnsureOptions {
  readonly settings: CertificateSettings;
  readonly client: ApiClient;
  readonly findApiServers: (signal: AbortSignal) => Promise<ApiServers>;
  readonly clock: Clock;
  readonly retrier: Retrier;
  readonly logger: Logger;
  readonly signal: AbortSignal;
  /** Rotates the CA and the serving certificate even where nothing is due. @default false */
  readonly rotateNow?: boolean;
  /** Waits where a step has to, and goes on; else it ends there and the next call goes on. @default false */
  readonly wait?: boolean;
  /** Told of every step that was taken. */
  readonly onStep?: (text: string) => void;
}

/** How far the certificates are. Times are milliseconds since the Unix epoch. */
export type EnsureResult =
  | { readonly state: "current"; readonly nextRenewal: number }
  | { readonly state: "waiting"; readonly reason: string; readonly until: number };

/** How long those that are only looked at once, since a later run looks again, may take, in milliseconds. */
const ONE_LOOK_MS = 10_000;
const POLL_MS = 1_000;
/** When it is worth while to look at replicas again that did not follow, in milliseconds. */
const LOOK_AGAIN_MS = 60_000;
/** So many others at once would have to win. */
const MAX_CONFLICTS = 50;
/**
 * From one turn to the next, in milliseconds: twice as long each time. A whole rotation takes eight turns, three seconds of
 * pauses; where another client undoes each step, or a step has to wait for a moment that is past, they would never end.
 */
const MIN_TURN_MS = 25;
const MAX_TURN_MS = 5_000;
const MAX_TURNS = 40;

/**
 * Keeps the certificates: creates them where there are none, takes the steps of a rotation that are due, and keeps the
 * caBundle of the webhook configuration, where there is one. May run any number of times at once: every write has what was
 * read as precondition, and the writer that loses reads again.
 *
 * It reads and writes the Secret and the webhook configuration by name, and no custom resource.
 * @throws {KsvmError} CertificateSecretUnusable, RotationStuck, or what a request ends in.
 */
export async function ensureCertificates(options: EnsureOptions): Promise<EnsureResult> {
  const { clock, logger, retrier, settings, signal } = options;
  const work = new Work(options);
  const pace = new LoopPace({ clock, minMs: MIN_TURN_MS, maxMs: MAX_TURN_MS });
  for (let conflicts = 0, turns = 0; ; ) {
    await pace.turn(signal);
    try {
      const result = await retrier.run(() => work.turn(), signal);
      if (result !== undefined) {
        return result;
      }
      turns++;
      if (turns >= MAX_TURNS) {
        const text = `Cannot finish with Secret "${settings.namespace}/${settings.secret}": ${turns} steps were taken`;
        throw new KsvmError("RotationStuck", `${text}, and another one is due; another client undoes them`);
      }
    } catch (error) {
      conflicts++;
      if (!isLost(error) || conflicts > MAX_CONFLICTS) {
        throw error;
      }
      logger.debug("Another client changed the certificates; reading them again");
      await clock.sleep(20 * conflicts, signal);
    }
  }
}

/** Another client wrote the Secret or the configuration in between, or deleted it. */
function isLost(error: unknown): boolean {
  return isConflict(error) || (failureKindOf(error) === "gone" && !isNamespaceMissing(error));
}

interface Read {
  readonly secret: SecretObject | undefined;
  readonly contents: SecretContents | undefined;
  readonly configuration: BundleHolder | undefined;
  readonly serverNow: number;
  /** The configuration had lost part of the bundle. */
  readonly drifted: boolean;
}

class Work {
  readonly #options: EnsureOptions;
  readonly #names: readonly string[];
  /** What `rotateNow` replaces, once the Secret has been read. */
  #replaceSigner: { readonly fingerprint: string | undefined } | undefined;

  constructor(options: EnsureOptions) {
    this.#options = options;
    this.#names = [...dnsNamesOf(options.settings), ...ipAddressesOf(options.settings)];
  }

  /** Reads everything again and takes one step; `undefined` where there may be another. */
  async turn(): Promise<EnsureResult | undefined> {
    const read = await this.#read();
    const step = this.#plan(read, false);
    const result = await this.#take(step, read);
    this.#options.retrier.progressed();
    return result;
  }

  async #read(): Promise<Read> {
    const { client, clock, settings, signal } = this.#options;
    // In this order: see publishBundle().
    const configuration = await findConfiguration(client, settings.webhookConfiguration, signal);
    const { secret, serverTime } = await readSecret(client, this.#secretRef, signal);
    const read = secret && contentsOf(secret);
    const contents = read?.bundle.length === 0 && read.serving === undefined ? undefined : read;
    this.#replaceSigner ??= { fingerprint: contents?.signer?.certificate.fingerprint256 };
    const drifted = await this.#publish(configuration, contents);
    return { secret, contents, configuration, serverNow: serverTime ?? clock.now(), drifted };
  }

  #plan({ contents, serverNow, drifted }: Read, served: boolean): RotationStep {
    const { settings, clock, rotateNow } = this.#options;
    return nextStep({
      ...settings,
      stored: contents && factsOf(contents, this.#names),
      now: clock.now(),
      serverNow,
      drifted,
      served,
      replaceSigner: rotateNow === true ? this.#replaceSigner?.fingerprint : undefined,
    });
  }

  async #take(step: RotationStep, read: Read): Promise<EnsureResult | undefined> {
    switch (step.type) {
      case "nothing":
        return { state: "current", nextRenewal: step.until };
      case "wait":
        return this.#wait(step, read.serverNow);
      case "proveSeen":
        return this.#proveSeen(read);
      case "proveServed":
        return this.#proveServed(read);
      case "noteSwitched":
        await this.#write(read, { data: {}, annotations: { [SWITCHED_ANNOTATION]: stampOf(read.serverNow) } });
        return undefined;
      default:
        await this.#issue(step.type, read, "reason" in step ? step.reason : undefined);
        return undefined;
    }
  }

  async #issue(step: WritingStep, read: Read, reason: string | undefined): Promise<void> {
    const { settings, clock } = this.#options;
    await this.#write(read, await changeOf(step, read.contents, { ...settings, now: new Date(clock.now()) }));
    this.#tell(`${DONE[step]}${reason === undefined ? "" : `: ${reason}`}`);
  }

  async #publish(configuration: BundleHolder | undefined, contents: SecretContents | undefined): Promise<boolean> {
    const { client, signal } = this.#options;
    const published = publishedBundleOf(configuration);
    if (configuration === undefined || published === undefined || contents === undefined) {
      return false;
    }
    const wanted = bundleOf(contents.bundle);
    if (contents.bundle.length === 0 || published === wanted) {
      return false;
    }
    await publishBundle(client, configuration, wanted, signal);
    this.#tell(`wrote the caBundle of webhook configuration "${configuration.metadata.name}"`);
    return !trustsAll(published, contents.bundle);
  }

  async #wait(step: Extract<RotationStep, { type: "wait" }>, serverNow: number): Promise<EnsureResult | undefined> {
    const { clock, signal, wait } = this.#options;
    const reason = `the ${step.for} have until then to follow`;
    if (wait !== true) {
      return { state: "waiting", reason, until: step.until };
    }
    this.#tell(`waiting ${Math.ceil((step.until - serverNow) / 1_000)} s for the ${step.for}`);
    await clock.sleep(step.until - serverNow, signal);
    return undefined;
  }

  async #proveSeen(read: Read): Promise<EnsureResult | undefined> {
    const { client, settings, signal, wait } = this.#options;
    // Without a webhook configuration there is no API server that trusts anything.
    if (publishedBundleOf(read.configuration) !== undefined) {
      const timeoutMs = wait === true ? settings.timeoutMs : Math.min(settings.timeoutMs, ONE_LOOK_MS);
      const name = settings.webhookConfiguration;
      await proveBundleSeen(read.contents?.bundle ?? [], { ...this.#options, name, timeoutMs });
    }
    // The moment must lie after the proof, so the clock is read again. The write rests on what was read before.
    const { serverTime } = await readSecret(client, this.#secretRef, signal);
    const seenAt = stampOf(serverTime ?? this.#options.clock.now());
    await this.#write(read, { data: {}, annotations: { [SEEN_ANNOTATION]: seenAt } });
    this.#tell("every API server shows the new CA");
    return undefined;
  }

  async #proveServed(read: Read): Promise<EnsureResult | undefined> {
    const { clock, logger, settings, signal, wait } = this.#options;
    const deadline = clock.monotonic() + settings.timeoutMs;
    for (;;) {
      const others = await this.#othersThan(read.contents);
      if (others.length === 0) {
        const step = this.#plan(read, true);
        return this.#take(step, read);
      }
      const reason = `${others.join(", ")} serve a certificate of the old CA`;
      if (wait !== true) {
        return { state: "waiting", reason, until: clock.now() + LOOK_AGAIN_MS };
      }
      if (clock.monotonic() >= deadline) {
        const text = `Cannot drop the old CA: ${reason}; both CAs stay trusted, run again`;
        throw new KsvmError("RotationStuck", text);
      }
      logger.debug({ others }, "Waiting for replicas");
      await clock.sleep(POLL_MS, signal);
    }
  }

  /** The replicas that are known to serve another CA's certificate. For those that cannot be asked the dwell time stands. */
  async #othersThan(contents: SecretContents | undefined): Promise<readonly string[]> {
    const { client, logger, settings, signal } = this.#options;
    const addresses = settings.replicaEndpoints ?? (await findReplicas(client, settings, signal));
    const ca = contents?.signer?.certificate;
    if (addresses === undefined || ca === undefined) {
      logger.warn("Cannot list the replicas of the webhook, so only the dwell time stands for them");
      return [];
    }
    const isCurrent = (certificate: Parameters<typeof isIssuedBy>[0]): boolean => isIssuedBy(certificate, ca);
    const { others, unasked } = await askReplicas(addresses, { names: settings, isCurrent, signal });
    if (unasked.length > 0) {
      logger.warn({ unasked }, "Cannot ask some replicas of the webhook, so only the dwell time stands for them");
    }
    return others;
  }

  async #write({ secret }: Read, change: SecretChange): Promise<void> {
    const { client, signal } = this.#options;
    await writeSecret(client, this.#secretRef, { before: secret, change }, signal);
  }

  #tell(text: string): void {
    this.#options.logger.info({ step: text }, "Took a step of the certificate rotation");
    this.#options.onStep?.(text);
  }

  get #secretRef(): { namespace: string; name: string } {
    const { namespace, secret } = this.#options.settings;
    return { namespace, name: secret };
  }
}

const DONE: Readonly<Record<WritingStep, string>> = {
  create: "created a CA and a serving certificate",
  introduceCa: "added a new CA to the bundle",
  switchCa: "issued the serving certificate from the new CA",
  renewServing: "renewed the serving certificate",
  dropOldCas: "dropped the old CA from the bundle",
};

/** The API server's clock comes cut to the second: the next one is late enough for certain. */
function stampOf(serverNow: number): string {
  return new Date(serverNow + 1_000).toISOString();
}
