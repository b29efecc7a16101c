import { promisify } from "node:util";
import forge from "node-forge";

/** A certificate with its key, as `src/certs/issue.ts` never issues it: of any name, validity, and depth. */
export interface SignedCertificate {
  readonly pem: string;
  readonly cert: forge.pki.Certificate;
  readonly keys: forge.pki.rsa.KeyPair;
}

const generateKeyPair = promisify<{ bits: number }, forge.pki.rsa.KeyPair>(forge.pki.rsa.generateKeyPair);

/** Makes a certificate; without `by` it signs itself, and without a name its subject is empty. */
export async function signed(
  commonName: string,
  options: {
    readonly by?: SignedCertificate;
    readonly isCa?: boolean;
    readonly from: Date;
    readonly to: Date;
    /** @default new ones */
    readonly keys?: forge.pki.rsa.KeyPair;
    /** @default none */
    readonly dnsName?: string;
    /** Whether it is for clients, and not for servers. @default it is for anything */
    readonly isForClients?: boolean;
  },
): Promise<SignedCertificate> {
  const {
    by,
    dnsName,
    isCa = false,
    isForClients = false,
    from,
    to,
    keys = await generateKeyPair({ bits: 2048 }),
  } = options;
  const cert = forge.pki.createCertificate();
  cert.publicKey = keys.publicKey;
  cert.serialNumber = `01${Math.floor(Math.random() * 0xff_ff_ff)
    .toString(16)
    .padStart(6, "0")}`;
  const subject = [
    { name: "organizationName", value: "tests" },
    { name: "commonName", value: commonName },
  ];
  cert.setSubject(commonName === "" ? [] : subject);
  cert.setIssuer((by?.cert ?? cert).subject.attributes);
  cert.validity.notBefore = from;
  cert.validity.notAfter = to;
  // By the issuer's name and serial number, as some PKIs have it, so that a renewed CA is another one.
  const { serialNumber } = by?.cert ?? cert;
  cert.setExtensions([
    { name: "basicConstraints", critical: true, cA: isCa },
    { name: "authorityKeyIdentifier", authorityCertIssuer: (by?.cert ?? cert).issuer, serialNumber },
    ...(isForClients ? [{ name: "extKeyUsage", clientAuth: true }] : []),
    ...(dnsName === undefined ? [] : [{ name: "subjectAltName", altNames: [{ type: 2, value: dnsName }] }]),
  ]);
  cert.sign((by?.keys ?? keys).privateKey, forge.md.sha256.create());
  return { pem: forge.pki.certificateToPem(cert), cert, keys };
}
