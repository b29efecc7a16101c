import type { X509Certificate } from "node:crypto";

/** From when until when a certificate is valid, in milliseconds since the Unix epoch. */
export interface ValidityPeriod {
  readonly notBefore: number;
  readonly notAfter: number;
}

/** The period of one certificate, whatever that of its CA is. */
export function periodOf({ validFromDate, validToDate }: X509Certificate): ValidityPeriod {
  return { notBefore: validFromDate.getTime(), notAfter: validToDate.getTime() };
}

/** Whether a certificate is valid at a moment. */
export function isValidAt(period: ValidityPeriod, now: number): boolean {
  return whyInvalidAt(period, now) === undefined;
}

/**
 * Why a certificate is not valid at a moment, such as "it expired at 2026-01-01T00:00:00.000Z"; `undefined` where it is.
 *
 * @param name what the certificate is called. @default it
 */
export function whyInvalidAt({ notBefore, notAfter }: ValidityPeriod, now: number, name = "it"): string | undefined {
  if (notAfter <= now) {
    return `${name} expired at ${new Date(notAfter).toISOString()}`;
  }
  return notBefore > now ? `${name} is not valid before ${new Date(notBefore).toISOString()}` : undefined;
}
