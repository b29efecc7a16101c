import type { X509Certificate } from "node:crypto";
import type { Logger } from "pino";
import { ApiServerMissing, type ApiServerOptions, askEach } from "../apiservers/find.ts";
import type { Clock } from "../clock.ts";
import { KsvmError, messageOf } from "../errors.ts";
import type { Client } from "../kube/client.ts";
import { ApiError, whose } from "../kube/errors.ts";
import { retry } from "../kube/retry.ts";
import {
  type BundleHolder,
  bundleOf,
  casBesides,
  configurationPath,
  findConfiguration,
  publishBundle,
  publishedBundleOf,
  trustsAll,
  withOwnCas,
} from "./ca-bundle.ts";
import type { KeySource } from "./issue.ts";
import { othersThan, type ReplicaAddress, type ServedBy } from "./replicas.ts";
import {
  clocksDisagree,
  doClocksAgree,
  isTurnedDown,
  nextStep,
  type RotationStep,
  type RotationTiming,
  skewText,
} from "./rotation-plan.ts";
import { changeOf, DONE, type IssueOptions, type WritingStep } from "./rotation-writes.ts";
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

/** What is kept, and how. */
export interface CertificateSettings extends IssueOptions, RotationTiming {
  /** Name of the Secret, in the namespace of the Service. */
  readonly secret: string;
  /** The host by which API servers call in the place of the Service. @default they call the Service */
  readonly calledBy?: string | undefined;
  /** Name of the ValidatingWebhookConfiguration. */
  readonly webhookConfiguration: string;
  /** Milliseconds that API servers and replicas may take to follow, where they are waited for. */
  readonly timeoutMs: number;
  /** Where the replicas listen. @default they are found by the Service's EndpointSlices */
  readonly replicaEndpoints?: readonly ReplicaAddress[] | undefined;
}

/** What of the certificates needs the machine. */
export interface CertificateTools {
  /** @default those of this machine */
  readonly keys?: KeySource | undefined;
  /** Finds out what a replica serves. @default by a TLS handshake */
  readonly servedBy?: ServedBy | undefined;
}

/** What the certificates are kept with. */
export interface EnsureOptions extends CertificateTools {
  readonly settings: CertificateSettings;
  readonly client: Client;
  /** @default another process asks the API servers whether they show a new CA, and goes on with the rotation */
  readonly apiServers?: ApiServerOptions;
  readonly clock: Clock;
  /** Milliseconds for which what fails and may pass is tried again. @default {@link PATIENCE_MS} */
  readonly patienceMs?: number;
  readonly logger: Logger;
  readonly signal: AbortSignal;
  /** Rotates the CA and the serving certificate even where nothing is due. @default false */
  readonly rotateNow?: boolean;
  /** Waits where a step has to, and goes on; else it ends there and the next call goes on. @default false */
  readonly wait?: boolean;
  /** For a process that comes back to a rotation: remembers the waits that it began. @default one for this call */
  readonly waits?: WaitClock;
  /** Told of every step that was taken. */
  readonly onStep?: (text: string) => void;
}

/**
 * How far the certificates are. Times are milliseconds since the Unix epoch, `now` when that was so: by the same clock
 * as the others.
 */
export type EnsureResult = { readonly now: number } & (
  | { readonly state: "current"; readonly nextRenewal: number }
  | { readonly state: "waiting"; readonly reason: string; readonly until: number }
);

/** So many others at once would have to win. */
const MAX_CONFLICTS = 50;
const PATIENCE_MS = 900_000;
/**
 * Between two turns, in milliseconds: twice as long each time. A whole rotation takes eight turns, six seconds of
 * pauses; where another client undoes each step, or a step has to wait for a moment that is past, they would never end.
 */
const MIN_TURN_MS = 25;
const MAX_TURN_MS = 5_000;
const MAX_TURNS = 40;

/**
 * Keeps the certificates: creates them where there are none, takes the steps of a rotation that are due, and keeps the
 * caBundle of the webhook configuration, where there is one. May run any number of times at once: every write has what
 * was read as precondition, and the writer that loses reads again.
 *
 * It reads and writes the Secret and the webhook configuration by name, and no custom resource.
 * @throws {KsvmError} CertificateSecretUnusable, ClocksDisagree, RotationStuck, or what a request ends in.
 */
export async function ensureCertificates(options: EnsureOptions): Promise<EnsureResult> {
  const { client, clock, logger, patienceMs = PATIENCE_MS, settings, signal } = options;
  const turns = new RotationTurns(options);
  const waits = { clock, random: client.random };
  for (let conflicts = 0, taken = 0; ; ) {
    try {
      const result = await retry(waits, () => turns.next(), { signal, forMs: patienceMs });
      if (result !== undefined) return result;
      taken++;
      if (taken >= MAX_TURNS) {
        const text = `Cannot finish with Secret "${settings.namespace}/${settings.secret}": ${taken} steps were taken`;
        throw new KsvmError("RotationStuck", `${text}, and another one is due; another client undoes them`);
      }
    } catch (error) {
      conflicts++;
      if (!isLost(error) || conflicts > MAX_CONFLICTS) {
        throw error;
      }
      logger.debug("Another client changed the certificates; reading them again");
    }
    await clock.sleep(Math.min(MAX_TURN_MS, MIN_TURN_MS * 2 ** (taken + conflicts - 1)), signal);
  }
}

/** Another client wrote the Secret or the configuration in between, or deleted it. */
function isLost(error: unknown): boolean {
  const isNamespace = error instanceof ApiError && error.answer?.details?.kind === "namespaces";
  return whose(error) === "conflict" || (whose(error) === "gone" && !isNamespace);
}

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
 * One turn after the other: each reads everything again and takes the step that is due. What `rotateNow` replaces is
 * what the first one reads.
 */
class RotationTurns {
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
   * @throws {KsvmError} CertificateSecretUnusable, ClocksDisagree, RotationStuck, or what a request ends in; a conflict
   *   where another client wrote in between.
   */
  async next(): Promise<EnsureResult | undefined> {
    const read = await this.#read();
    const step = this.#plan(read, false);
    return this.#take(step, read);
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

  /**
   * Replicas serve all the same what lacks a further name alone: nothing is signed by other CAs than those that come
   * with it.
   */
  #isTurnedDown(contents: SecretContents | undefined, now: number): boolean {
    const { settings } = this.#options;
    const { calledBy = serverNameOf(settings), namespace } = settings;
    return isTurnedDown(contents && factsOf(contents, [calledBy], namespace), now);
  }

  /**
   * While API servers refuse what the Secret holds, as where an old copy of it was restored, replicas may serve what
   * other CAs of the caBundle have signed, so none is taken away before it has been repaired, and the repair keeps
   * those as long as the CAs of a rotation.
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
    const { apiServers } = this.#options;
    // Without a webhook configuration there is no API server that trusts anything.
    if (publishedBundleOf(read.configuration) !== undefined) {
      if (apiServers === undefined) {
        const reason = "another process asks the API servers whether they show the new CA";
        return { state: "waiting", reason, until: read.now + LOOK_AGAIN_MS, now: read.now };
      }
      await proveBundleSeen(read.contents?.bundle ?? [], apiServers, this.#options);
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

/** Milliseconds that an API server may take to answer. */
const ANSWER_MS = 5_000;

/**
 * Reads the configuration back from every API server until each shows a caBundle that trusts all of `cas`. Each answers
 * from its watch cache (resourceVersion 0), which is what feeds its admission plugin too: an API server that is cut off
 * from etcd shows the old bundle here, where a plain read would fail or go past the cache.
 * @throws {KsvmError} RotationStuck where one of them does not
 */
async function proveBundleSeen(
  cas: readonly X509Certificate[],
  apiServers: ApiServerOptions,
  { client, settings, signal, wait }: EnsureOptions,
): Promise<void> {
  const path = configurationPath(settings.webhookConfiguration);
  const ask = async (apiServer: Client, asking: AbortSignal): Promise<boolean> => {
    const options = { query: { resourceVersion: 0 }, signal: asking, timeoutMs: ANSWER_MS };
    const shown = publishedBundleOf(await apiServer.get<BundleHolder>(path, options));
    return shown !== undefined && trustsAll(shown, cas);
  };
  const { clock } = client;
  const end = clock.monotonic() + (wait === true ? settings.timeoutMs : Math.min(settings.timeoutMs, ONE_LOOK_MS));
  for (;;) {
    let reason: string;
    try {
      const { answers } = await askEach(client, apiServers, ask, signal);
      const behind = answers.find(({ answer }) => !answer);
      if (behind === undefined) return;
      reason = `${behind.address} does not show the new CA in the caBundle`;
    } catch (error) {
      // One that is silent, or has just started, may answer later.
      if (!(error instanceof ApiServerMissing) && whose(error) === undefined) throw error;
      reason = messageOf(error);
    }
    if (clock.monotonic() >= end) {
      throw new KsvmError("RotationStuck", `Cannot use the new CA yet: ${reason}; both CAs stay trusted, run again`);
    }
    await clock.sleep(POLL_MS, signal);
  }
}

/**
 * What a moment by the API server is noted later, in milliseconds. It comes cut to the second: the next one is late
 * enough for certain.
 */
const STAMP_MS = 1_000;

/**
 * Counts the waits of a rotation, each of which begins at a moment that the Secret notes, by the clock of the API
 * server that was asked then. Another one may answer now, whose clock says something else: by that the wait would be
 * over at once, or never. So it is counted by the monotonic clock, for as long as this lives.
 */
export class WaitClock {
  readonly #clock: Pick<Clock, "monotonic">;
  /** The moment that the Secret notes, since when it was seen there, and whether this process noted it. */
  #noted: { readonly time: number; readonly at: number; readonly isOwn: boolean } | undefined;

  constructor(clock: Pick<Clock, "monotonic">) {
    this.#clock = clock;
  }

  /** Has a wait begin. @returns what to note in the Secret */
  begin(serverNow: number): number {
    const time = serverNow + STAMP_MS;
    this.#noted = { time, at: this.#clock.monotonic(), isOwn: true };
    return time;
  }

  /**
   * The time by the clock that noted a moment, as far as that is known.
   *
   * @param time what the Secret notes; `undefined` where that is nothing
   * @param isServerSure whether the API server's clock can be believed where another process began the wait
   */
  now(time: number | undefined, serverNow: number, isServerSure: boolean): number {
    if (time === undefined) {
      return serverNow;
    }
    const now = this.#clock.monotonic();
    if (this.#noted?.time !== time) {
      this.#noted = { time, at: now, isOwn: false };
    }
    const { at, isOwn } = this.#noted;
    // What another process noted was noted before it was seen here, at the latest.
    const since = time - STAMP_MS + now - at;
    return isOwn || !isServerSure ? since : Math.max(serverNow, since);
  }
}
