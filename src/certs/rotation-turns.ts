import type { X509Certificate } from "node:crypto";
import type { ApiServers } from "../old/apiservers/api-servers.ts";
import { findWithin } from "../old/apiservers/find-within.ts";
import { KsvmError } from "../errors.ts";
import { proveBundleSeen } from "./bundle-proof.ts";
import {
  type BundleHolder,
  bundleOf,
  casBesides,
  findConfiguration,
  publishBundle,
  publishedBundleOf,
  trustsAll,
  withOwnCas,
} from "./ca-bundle.ts";
import { clocksDisagree, doClocksAgree, skewText } from "./clock-skew.ts";
import type { EnsureOptions, EnsureResult } from "./ensure-options.ts";
import { othersThan } from "./other-replicas.ts";
import { isTurnedDown, nextStep } from "./rotation-plan.ts";
import type { RotationStep } from "./rotation-step.ts";
import { changeOf, DONE, type WritingStep } from "./rotation-writes.ts";
import {
  contentsOf,
  factsOf,
  type SecretContents,
  type SecretObject,
  SEEN_ANNOTATION,
  SWITCHED_ANNOTATION,
} from "./secret-contents.ts";
import { readSecret, type SecretChange, type SecretRef, writeSecret } from "./secret-store.ts";
import { dnsNamesOf, ipAddressesOf, serverNameOf } from "./service-names.ts";
import { WaitClock } from "./wait-clock.ts";

/** How long those that are only looked at once, since a later run looks again, may take, in milliseconds. */
const ONE_LOOK_MS = 10_000;
const POLL_MS = 1_000;
/** When it is worth while to look at replicas again that did not follow, in milliseconds. */
const LOOK_AGAIN_MS = 60_000;

interface Read {
  readonly secret: SecretObject | undefined;
  readonly contents: SecretContents | undefined;
  readonly configuration: BundleHolder | undefined;
  /** These three as in the plan's input. */
  readonly now: number;
  readonly clockSkewMs: number;
  readonly waitNow: number;
  /** The configuration had lost part of the bundle. */
  readonly drifted: boolean;
}

/**
 * One turn after the other: each reads everything again and takes the step that is due. What `rotateNow` replaces is what the
 * first one reads.
 */
export class RotationTurns {
  readonly #options: EnsureOptions;
  readonly #secretRef: SecretRef;
  readonly #names: readonly string[];
  /** What `rotateNow` replaces, once the Secret has been read. */
  #replaceSigner: { readonly fingerprint: string | undefined } | undefined;
  readonly #waits: WaitClock;

  constructor(options: EnsureOptions) {
    this.#options = options;
    this.#secretRef = { namespace: options.settings.namespace, name: options.settings.secret };
    this.#names = [...dnsNamesOf(options.settings), ...ipAddressesOf(options.settings)];
    this.#waits = options.waits ?? new WaitClock(options.clock);
  }

  /**
   * Reads everything again and takes one step.
   * @returns `undefined` where another step may be due
   * @throws {KsvmError} CertificateSecretUnusable, ClocksDisagree, RotationStuck, or what a request ends in; a conflict where another client
   *   wrote in between.
   */
  async next(): Promise<EnsureResult | undefined> {
    const read = await this.#read();
    const step = this.#plan(read, false);
    const result = await this.#take(step, read);
    this.#options.retrier.progressed();
    return result;
  }

  async #read(): Promise<Read> {
    const { client, settings, signal } = this.#options;
    // In this order: see publishBundle().
    const configuration = await findConfiguration(client, settings.webhookConfiguration, signal);
    const { secret, serverTime, clockSkewMs } = await this.#readSecret();
    const contents = secret && usable(contentsOf(secret));
    this.#replaceSigner ??= { fingerprint: contents?.signer?.certificate.fingerprint256 };
    const drifted = await this.#publish(configuration, contents, serverTime);
    const waitNow = this.#waits.now(contents?.seenAt ?? contents?.switchedAt, serverTime, doClocksAgree(clockSkewMs));
    return { secret, contents, configuration, now: serverTime, clockSkewMs, waitNow, drifted };
  }

  /** The time is this machine's where the answer has none. */
  async #readSecret(): Promise<{ secret: SecretObject | undefined; serverTime: number; clockSkewMs: number }> {
    const { client, clock, signal } = this.#options;
    const { secret, serverTime } = await readSecret(client, this.#secretRef, signal);
    const localNow = clock.now();
    return { secret, serverTime: serverTime ?? localNow, clockSkewMs: localNow - (serverTime ?? localNow) };
  }

  #plan({ contents, now, clockSkewMs, waitNow, drifted }: Read, served: boolean): RotationStep {
    const { settings, rotateNow } = this.#options;
    return nextStep({
      ...settings,
      stored: contents && factsOf(contents, this.#names, settings.namespace),
      now,
      clockSkewMs,
      waitNow,
      drifted,
      served,
      replaceSigner: rotateNow === true ? this.#replaceSigner?.fingerprint : undefined,
    });
  }

  async #take(step: RotationStep, read: Read): Promise<EnsureResult | undefined> {
    switch (step.type) {
      case "nothing":
        this.#warnOfClocks(read);
        return { state: "current", nextRenewal: step.until, now: read.now };
      case "clocksDisagree":
        throw clocksDisagree(read.clockSkewMs);
      case "wait":
        return this.#wait(step, read.waitNow);
      case "proveSeen":
        return this.#proveSeen(read);
      case "proveServed":
        return this.#proveServed(read);
      case "noteSwitched":
        await this.#note(read, SWITCHED_ANNOTATION, read.now);
        return undefined;
      default:
        await this.#issue(step, read);
        return undefined;
    }
  }

  async #issue(step: Extract<RotationStep, { readonly type: WritingStep }>, read: Read): Promise<void> {
    const { settings, keys } = this.#options;
    const { type, clocks = { now: read.now } } = step;
    await this.#write(
      read,
      await changeOf(type, read.contents, { ...settings, ...clocks, keys, kept: this.#keptCas(read) }),
    );
    this.#tell(`${DONE[type]}${"reason" in step ? `: ${step.reason}` : ""}`);
  }

  /** There are none where replicas serve what the Secret holds. */
  #keptCas({ clockSkewMs, configuration, contents, now }: Read): readonly X509Certificate[] {
    const times = [now, now + clockSkewMs];
    const besides = casBesides(publishedBundleOf(configuration), contents?.bundle ?? [], times);
    return this.#isTurnedDown(contents, now) ? besides : [];
  }

  /** Replicas serve all the same what lacks a further name alone: nothing is signed by other CAs than those that come with it. */
  #isTurnedDown(contents: SecretContents | undefined, now: number): boolean {
    const { settings } = this.#options;
    const { calledBy = serverNameOf(settings), namespace } = settings;
    return isTurnedDown(contents && factsOf(contents, [calledBy], namespace), now);
  }

  /**
   * While API servers refuse what the Secret holds, as where an old copy of it was restored, replicas may serve what other CAs of the caBundle have
   * signed, so none is taken away before it has been repaired, and the repair keeps those as long as the CAs of a rotation.
   * @returns whether the configuration had lost part of the bundle
   */
  async #publish(
    configuration: BundleHolder | undefined,
    contents: SecretContents | undefined,
    now: number,
  ): Promise<boolean> {
    const { client, signal } = this.#options;
    const published = publishedBundleOf(configuration);
    if (configuration === undefined || published === undefined || contents === undefined) {
      return false;
    }
    const own = bundleOf(contents.bundle);
    const wanted = this.#isTurnedDown(contents, now) ? withOwnCas(published, own) : own;
    if (contents.bundle.length === 0 || published === wanted) {
      return false;
    }
    await publishBundle(client, configuration, wanted, signal);
    this.#tell(`wrote the caBundle of webhook configuration "${configuration.metadata.name}"`);
    return !trustsAll(published, contents.bundle);
  }

  async #wait(step: Extract<RotationStep, { type: "wait" }>, now: number): Promise<EnsureResult | undefined> {
    const { clock, signal, wait } = this.#options;
    const reason = `the ${step.for} have until then to follow`;
    if (wait !== true) {
      return { state: "waiting", reason, until: step.until, now };
    }
    this.#tell(`waiting ${Math.ceil((step.until - now) / 1_000)} s for the ${step.for}`);
    await clock.sleep(step.until - now, signal);
    return undefined;
  }

  async #proveSeen(read: Read): Promise<EnsureResult | undefined> {
    const { settings, wait } = this.#options;
    // Without a webhook configuration there is no API server that trusts anything.
    if (publishedBundleOf(read.configuration) !== undefined) {
      const timeoutMs = wait === true ? settings.timeoutMs : Math.min(settings.timeoutMs, ONE_LOOK_MS);
      const name = settings.webhookConfiguration;
      // Where it may wait, its own limit names the one that is missing.
      const findApiServers = (signal: AbortSignal): Promise<ApiServers> =>
        wait === true ? this.#options.findApiServers(signal) : findWithin({ ...this.#options, timeoutMs, signal });
      await proveBundleSeen(read.contents?.bundle ?? [], { ...this.#options, findApiServers, name, timeoutMs });
    }
    // The moment must lie after the proof, so the clock is read again. The write rests on what was read before.
    const { serverTime } = await this.#readSecret();
    await this.#note(read, SEEN_ANNOTATION, serverTime);
    this.#tell("every API server shows the new CA");
    return undefined;
  }

  async #proveServed(read: Read): Promise<EnsureResult | undefined> {
    const { clock, logger, settings, signal, wait } = this.#options;
    const deadline = clock.monotonic() + settings.timeoutMs;
    for (;;) {
      const others = await othersThan(read.contents?.signer?.certificate, this.#options);
      if (others.length === 0) {
        const step = this.#plan(read, true);
        return this.#take(step, read);
      }
      const reason = `${others.join(", ")} serve a certificate of the old CA`;
      if (wait !== true) {
        return { state: "waiting", reason, until: read.now + LOOK_AGAIN_MS, now: read.now };
      }
      if (clock.monotonic() >= deadline) {
        const text = `Cannot drop the old CA: ${reason}; both CAs stay trusted, run again`;
        throw new KsvmError("RotationStuck", text);
      }
      logger.debug({ others }, "Waiting for replicas");
      await clock.sleep(POLL_MS, signal);
    }
  }

  /** Notes a moment by the API server's clock, which a wait begins at. */
  async #note(read: Read, annotation: string, now: number): Promise<void> {
    const time = this.#waits.begin(now);
    await this.#write(read, { data: {}, annotations: { [annotation]: new Date(time).toISOString() } });
  }

  async #write({ secret }: Read, change: SecretChange): Promise<void> {
    const { client, signal } = this.#options;
    await writeSecret(client, this.#secretRef, { before: secret, change }, signal);
  }

  /** In time: as long as nothing is due, nothing is lost. */
  #warnOfClocks({ clockSkewMs }: Read): void {
    if (!doClocksAgree(clockSkewMs)) {
      this.#options.logger.warn(
        { reason: skewText(clockSkewMs) },
        "Certificates are replaced only where both clocks say that they are due",
      );
    }
  }

  #tell(text: string): void {
    this.#options.logger.info({ step: text }, "Took a step of the certificate rotation");
    this.#options.onStep?.(text);
  }
}

/** What a Secret holds, `undefined` where nothing of it is to be kept. */
function usable(contents: SecretContents): SecretContents | undefined {
  return contents.bundle.length === 0 && contents.serving === undefined ? undefined : contents;
}
