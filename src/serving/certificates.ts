import { X509Certificate } from "node:crypto";
import { isIP } from "node:net";

/** OIDs of extended key usages: `serverAuth`, and the one that stands for all (RFC 5280, section 4.2.1.12). */
const SERVER_USAGES: ReadonlySet<string> = new Set(["1.3.6.1.5.5.7.3.1", "2.5.29.37.0"]);

/**
 * Whether API servers take a certificate for that of a server. As Go has it, one without extended key usages is for
 * all.
 */
export function isForServers(certificate: X509Certificate): boolean {
  // Node.js has the extended key usages under this name.
  const usages = certificate.keyUsage as readonly string[] | undefined;
  return usages === undefined || usages.some((usage) => SERVER_USAGES.has(usage));
}

/**
 * Why an API server that calls by a name takes no certificate such as this one, whichever CA signed it; `undefined`
 * where it does. As Go has it, names are those of the subject alternative names alone.
 *
 * @param certPem with its chain behind it or without; it can be read
 * @param serverName a DNS name or an IP address
 */
export function purposeProblemOf(certPem: string, serverName: string): string | undefined {
  const certificate = new X509Certificate(certPem);
  if (!isForServers(certificate)) {
    return "the serving certificate is not for servers: its extended key usage lacks serverAuth";
  }
  const matches =
    isIP(serverName) === 0 ? certificate.checkHost(serverName, { subject: "never" }) : certificate.checkIP(serverName);
  if (matches !== undefined) {
    return undefined;
  }
  const names = certificate.subjectAltName ?? "none";
  const called = `${serverName}, by which API servers call the webhook`;
  return `the serving certificate is not valid for ${called}; its names: ${names}`;
}

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
 * Why a certificate is not valid at a moment, such as "it expired at 2026-01-01T00:00:00.000Z"; `undefined` where it
 * is.
 *
 * @param name what the certificate is called. @default it
 */
export function whyInvalidAt({ notBefore, notAfter }: ValidityPeriod, now: number, name = "it"): string | undefined {
  if (notAfter <= now) {
    return `${name} expired at ${new Date(notAfter).toISOString()}`;
  }
  return notBefore > now ? `${name} is not valid before ${new Date(notBefore).toISOString()}` : undefined;
}
