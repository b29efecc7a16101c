/** What to do, by the code of OpenSSL or Node.js: https://nodejs.org/docs/latest-v24.x/api/tls.html#x509-certificate-error-codes */
const REMEDIES: Readonly<Record<string, string>> = {
  ERR_TLS_CERT_ALTNAME_INVALID:
    "use an address in the kubeconfig that its certificate is valid for, or set tls-server-name of the cluster to a name that it is",
  CERT_HAS_EXPIRED: "renew it, or correct the clock of this machine",
  CERT_NOT_YET_VALID: "correct the clock of this machine, or of the one that issued it",
  CERT_REVOKED: "have another one issued",
};
const WRONG_CA =
  "set certificate-authority or certificate-authority-data of the cluster in the kubeconfig to the CA that signed its certificate";
/** No CA that is trusted signed it. */
const WRONG_CA_CODES: ReadonlySet<string> = new Set([
  "CERT_SIGNATURE_FAILURE",
  "CERT_UNTRUSTED",
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "INVALID_CA",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
]);

/**
 * What to do where the certificate of a server, or of a proxy before it, is not trusted; `undefined` where that is not why it failed.
 *
 * @param cause what node:tls or undici threw
 */
export function untrustedRemedy(cause: unknown): string | undefined {
  if (!(cause instanceof Error)) {
    return undefined;
  }
  const { code = "" } = cause as NodeJS.ErrnoException;
  const inner: unknown = cause instanceof AggregateError ? cause.errors[0] : cause.cause;
  return (WRONG_CA_CODES.has(code) ? WRONG_CA : REMEDIES[code]) ?? untrustedRemedy(inner);
}
