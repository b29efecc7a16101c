import { createPrivateKey, X509Certificate } from "node:crypto";
import { createSecureContext } from "node:tls";
import { messageOf } from "../errors.ts";

/** PEM texts of a serving certificate (with its chain) and its key. */
export interface ServingPair {
  readonly certPem: string;
  readonly keyPem: string;
}

/** What became of a pair that was offered: taken into use, or turned down for a reason. */
export type ServingPairOutcome =
  | { readonly result: "loaded"; readonly pair: ServingPair; readonly expiresAt: Date }
  | { readonly result: "rejected"; readonly reason: string };

/** Options of {@link ServingCertificate}. */
export interface ServingCertificateOptions {
  /** Milliseconds since the Unix epoch. @default the clock of this machine */
  readonly now?: () => number;
}

/** The pair that the server serves with; changed while it runs, without a dropped connection. */
export class ServingCertificate {
  readonly #now: () => number;
  readonly #listeners = new Set<(outcome: ServingPairOutcome) => void>();
  #current: ServingPair | undefined;
  #expiresAt: Date | undefined;

  constructor({ now = Date.now }: ServingCertificateOptions = {}) {
    this.#now = now;
  }

  /** Undefined until the first good pair. */
  get current(): ServingPair | undefined {
    return this.#current;
  }

  /** When the certificate in use expires; undefined until there is one. */
  get expiresAt(): Date | undefined {
    return this.#expiresAt;
  }

  /**
   * Takes a pair into use; returns a reason (one clear line) and keeps the last good one if it is bad (unparsable, key
   * does not match, expired). The pair that is in use already is nothing new, and is not reported.
   */
  offer(pair: ServingPair): string | undefined {
    if (this.#current?.certPem === pair.certPem && this.#current.keyPem === pair.keyPem) {
      return undefined;
    }
    const checked = checkPair(pair, this.#now());
    if (typeof checked === "string") {
      this.#tell({ result: "rejected", reason: checked });
      return checked;
    }
    this.#current = { certPem: pair.certPem, keyPem: pair.keyPem };
    this.#expiresAt = checked;
    this.#tell({ result: "loaded", pair: this.#current, expiresAt: checked });
    return undefined;
  }

  /**
   * Why the server cannot serve with what it has; undefined where it can. An expired certificate is one that no API
   * server accepts.
   */
  unusable(): string | undefined {
    if (this.#expiresAt === undefined) {
      return "there is no serving certificate yet";
    }
    return this.#expiresAt.getTime() <= this.#now()
      ? `the serving certificate expired at ${this.#expiresAt.toISOString()}`
      : undefined;
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

/** When the certificate expires, or what is wrong with the pair. */
function checkPair({ certPem, keyPem }: ServingPair, now: number): Date | string {
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
  const expiresAt = certificate.validToDate;
  if (expiresAt.getTime() <= now) {
    return `Cannot use the serving certificate: it expired at ${expiresAt.toISOString()}`;
  }
  // What the server itself will do with it: this finds a chain that does not parse, and keys that OpenSSL calls weak.
  const context = parse(() => createSecureContext({ cert: certPem, key: keyPem }));
  return typeof context === "string" ? `Cannot use the serving certificate: ${context}` : expiresAt;
}

/** OpenSSL's messages name what it could not read, never what stands in it. */
function parse<T>(read: () => T): T | string {
  try {
    return read();
  } catch (error) {
    return messageOf(error);
  }
}
