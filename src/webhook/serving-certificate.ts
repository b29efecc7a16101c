import { createPrivateKey, X509Certificate } from "node:crypto";
import { createSecureContext } from "node:tls";
import type { Logger } from "pino";
import { messageOf } from "../errors.ts";
import { periodOf, purposeProblemOf, type ValidityPeriod, whyInvalidAt } from "../serving/certificates.ts";

/** PEM texts of a serving certificate (with its chain) and its key. */
export interface ServingPair {
  readonly certPem: string;
  readonly keyPem: string;
}

/** Where serving certificates come from: it offers every pair that it finds to the server. */
export interface CertificateSource {
  /** Runs until the signal is aborted; whatever fails in between is waited out. */
  run(signal: AbortSignal): Promise<void>;
  /** Looks at once, where that shows what others wrote. @throws what a request ends in. */
  look?(signal: AbortSignal): Promise<void>;
}

/** What every source needs. */
export interface SourceOptions {
  /**
   * Offered at every look what is there then: one that was turned down may be good by now, where a clock was corrected.
   * It warns and counts (ServingCertificate.subscribe()).
   */
  readonly certificate: Pick<ServingCertificate, "offer">;
  readonly logger: Logger;
}

/** What became of a pair that was offered: taken into use, or turned down for a reason. */
export type ServingPairOutcome =
  | { readonly result: "loaded"; readonly pair: ServingPair; readonly expiresAt: Date }
  | { readonly result: "rejected"; readonly reason: string };

/** Options of {@link ServingCertificate}. */
export interface ServingCertificateOptions {
  /**
   * The same moment by every clock that is known, in milliseconds since the Unix epoch: that of API servers first, who
   * judge the certificate in the end. @default the clock of this machine
   */
  readonly times?: () => readonly number[];
  /** The DNS name or IP address by which API servers call. @default any */
  readonly serverName?: string;
}

/**
 * The pair that the server serves with; changed while it runs, without a dropped connection.
 *
 * One pair replaces another one that can be used only where it is valid by the first of the clocks. Without one that
 * can be used there is nothing to lose: any clock will do then, and to call a pair unusable takes all of them. Nor is
 * one that API servers can call by the name that they use replaced by one that they cannot.
 */
export class ServingCertificate {
  readonly #times: () => readonly number[];
  readonly #serverName: string | undefined;
  readonly #listeners = new Set<(outcome: ServingPairOutcome) => void>();
  #current: ServingPair | undefined;
  #period: ValidityPeriod | undefined;
  /** What was turned down last: it is told of once, and again where the reason is another one. */
  #rejected: (ServingPair & { readonly reason: string }) | undefined;

  constructor({ serverName, times = () => [Date.now()] }: ServingCertificateOptions = {}) {
    this.#times = times;
    this.#serverName = serverName;
  }

  /** Undefined until the first good pair. */
  get current(): ServingPair | undefined {
    return this.#current;
  }

  /** When the certificate in use expires; undefined until there is one. */
  get expiresAt(): Date | undefined {
    return this.#period && new Date(this.#period.notAfter);
  }

  /**
   * Takes a pair into use; returns a reason (one clear line) and keeps the last good one if it is bad (unparsable, key
   * does not match, expired, not valid yet). It may be offered again and again, since clocks are corrected: the pair
   * that is in use already is nothing new, and one that is turned down for the same reason as before is not reported.
   */
  offer(pair: ServingPair): string | undefined {
    if (isSame(this.#current, pair)) {
      this.#rejected = undefined;
      return undefined;
    }
    const checked = checkPair(pair);
    const reason = typeof checked === "string" ? checked : this.#whyNotTaken(pair, checked);
    if (typeof checked === "string" || reason !== undefined) {
      if (typeof checked === "string" || !this.#isValidSoon(checked)) {
        this.#reject(pair, reason ?? "");
      }
      return reason;
    }
    const { certPem, keyPem } = pair;
    this.#current = { certPem, keyPem };
    this.#period = checked;
    this.#rejected = undefined;
    this.#tell({ result: "loaded", pair: this.#current, expiresAt: new Date(checked.notAfter) });
    return undefined;
  }

  /**
   * Why the server cannot serve with what it has; undefined where it can. An expired certificate is one that no API
   * server accepts.
   */
  unusable(): string | undefined {
    return this.#period === undefined
      ? "there is no serving certificate yet"
      : whyInvalidByAll(this.#period, this.#times(), "the serving certificate");
  }

  #whyNotTaken(pair: ServingPair, period: ValidityPeriod): string | undefined {
    const times = this.#times();
    const isInUse = this.unusable() === undefined;
    const why = whyInvalidByAll(period, isInUse ? times.slice(0, 1) : times, "it");
    const problem = why ?? (isInUse ? this.#purposeLost(pair) : undefined);
    return problem && `Cannot use the serving certificate: ${problem}`;
  }

  /**
   * Why API servers cannot call with a pair in the place of the one in use; `undefined` where they can, or cannot in
   * any case.
   */
  #purposeLost({ certPem }: ServingPair): string | undefined {
    const [current, name] = [this.#current, this.#serverName];
    return current === undefined || name === undefined || purposeProblemOf(current.certPem, name) !== undefined
      ? undefined
      : purposeProblemOf(certPem, name);
  }

  #isValidSoon({ notBefore, notAfter }: ValidityPeriod): boolean {
    const [now = 0] = this.#times();
    return notBefore > now && notBefore <= now + SOON_MS && notAfter > now;
  }

  #reject({ certPem, keyPem }: ServingPair, reason: string): void {
    const before = this.#rejected;
    this.#rejected = { certPem, keyPem, reason };
    if (!isSame(before, this.#rejected) || before?.reason !== reason) {
      this.#tell({ result: "rejected", reason });
    }
  }

  /** Calls `listener` after every offer of another pair; returns what ends that. */
  subscribe(listener: (outcome: ServingPairOutcome) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #tell(outcome: ServingPairOutcome): void {
    for (const listener of this.#listeners) {
      listener(outcome);
    }
  }
}

/**
 * Nothing is said of a pair that becomes valid within this many milliseconds: its source offers it again. cert-manager
 * issues certificates that are valid from the same second on, and the `Date` of API servers, cut to seconds, may still
 * lie before that.
 */
const SOON_MS = 5_000;

function isSame(one: ServingPair | undefined, other: ServingPair): boolean {
  return one?.certPem === other.certPem && one.keyPem === other.keyPem;
}

/** Why a certificate is not valid, by the first of the clocks, where it is not valid by any of them. */
function whyInvalidByAll(period: ValidityPeriod, times: readonly number[], name: string): string | undefined {
  const reasons = times.map((now) => whyInvalidAt(period, now, name));
  return reasons.includes(undefined) ? undefined : reasons[0];
}

/** From when until when the certificate is valid, or what is wrong with the pair whatever time it is. */
function checkPair({ certPem, keyPem }: ServingPair): ValidityPeriod | string {
  const certificate = parse(() => new X509Certificate(certPem));
  if (typeof certificate === "string") {
    return `Cannot read the serving certificate: ${certificate}`;
  }
  const key = parse(() => createPrivateKey(keyPem));
  if (typeof key === "string") {
    return `Cannot read the key of the serving certificate: ${key}`;
  }
  if (!certificate.checkPrivateKey(key)) {
    return "Cannot use the serving certificate: the key belongs to another certificate";
  }
  // What the server itself will do with it: this finds a chain that does not parse, and keys that OpenSSL calls weak.
  const context = parse(() => createSecureContext({ cert: certPem, key: keyPem }));
  return typeof context === "string" ? `Cannot use the serving certificate: ${context}` : periodOf(certificate);
}

/** OpenSSL's messages name what it could not read, never what stands in it. */
function parse<T>(read: () => T): T | string {
  try {
    return read();
  } catch (error) {
    return messageOf(error);
  }
}
