import tap from "tap";
import { distrustOf } from "../../src/certs/trust-chain.ts";
import { signed, type SignedCertificate } from "./signed-certificate.ts";

const HOUR_MS = 3_600_000;
const now = Date.parse("2026-06-01T12:00:00Z");
const [from, to] = [new Date(now - HOUR_MS), new Date(now + HOUR_MS)];
const valid = { from, to };
const [expired, coming] = [
  { from: new Date(now - 2 * HOUR_MS), to: from },
  { from: to, to: new Date(now + 2 * HOUR_MS) },
];

const ca = await signed("ca", { isCa: true, ...valid });
const serving = await signed("webhook", { by: ca, ...valid });
const other = await signed("other-ca", { isCa: true, ...valid });
const namesake = await signed("ca", { isCa: true, ...valid });
const intermediate = await signed("intermediate", { by: ca, isCa: true, ...valid });
const deep = await signed("deep", { by: intermediate, ...valid });
const outdatedCa = await signed("ca", { isCa: true, keys: ca.keys, ...expired });
const renewedCa = await signed("ca", { isCa: true, keys: ca.keys, ...valid });
const comingCa = await signed("ca", { isCa: true, keys: ca.keys, ...coming });
const outdatedMiddle = await signed("intermediate", { by: ca, isCa: true, keys: intermediate.keys, ...expired });
const outdatedServing = await signed("webhook", { by: ca, ...expired });
const nameless = await signed("", { by: ca, ...expired });
const namelessAlone = await signed("", valid);
const selfSigned = await signed("alone", valid);
// Each signed the other: a search that does not look back never ends.
const left = await signed("left", { isCa: true, ...valid });
const right = await signed("right", { by: left, isCa: true, ...valid });
const leftAgain = await signed("left", { by: right, isCa: true, keys: left.keys, ...valid });
const crossed = await signed("crossed", { by: leftAgain, ...valid });

type Text = string | SignedCertificate;

function pemOf(...parts: readonly Text[]): string {
  return parts.map((part) => (typeof part === "string" ? part : part.pem)).join("");
}

const GARBAGE = "-----BEGIN CERTIFICATE-----\nbm9uc2Vuc2U=\n-----END CERTIFICATE-----\n";

const accepted: readonly [name: string, bundle: readonly Text[], sent: readonly Text[]][] = [
  ["the CA that signed it", [ca], [serving]],
  ["two CAs during a rotation, the new one in use", [other, ca], [serving]],
  ["two CAs during a rotation, the old one in use", [ca, other], [serving]],
  ["two CAs of one name", [namesake, ca], [serving]],
  ["garbage beside the CA", [GARBAGE, "# a comment\n", ca], [serving]],
  ["a root, with the intermediate sent", [ca], [deep, intermediate]],
  ["a root, with the intermediate sent out of order", [ca], [deep, other, intermediate]],
  ["an intermediate without its root", [intermediate], [deep]],
  ["a root and an intermediate, with nothing sent", [ca, intermediate], [deep]],
  ["an expired CA and its renewal with the same key", [outdatedCa, ca], [serving]],
  ["a renewal of the CA with the same key", [renewedCa], [serving]],
  ["an expired intermediate sent, and its renewal trusted", [intermediate], [deep, outdatedMiddle]],
  ["the certificate itself, which signed itself", [selfSigned], [selfSigned]],
  ["the certificate itself, without its CA", [serving], [serving]],
];

for (const [name, bundle, sent] of accepted) {
  await tap.test(`distrustOf() has nothing against ${name}`, async (t) => {
    const caBundle = Buffer.from(pemOf(...bundle)).toString("base64");
    t.equal(distrustOf({ caBundle, certPem: pemOf(...sent), now }), undefined);
  });
}

const UNSIGNED = 'none of its CAs signed the serving certificate, whose issuer is "O=tests, CN=';
const UNREADABLE = "it holds no certificate that can be read";
const validity = ({ from: begin, to: end }: { from: Date; to: Date }): string =>
  `is valid from ${begin.toISOString()} to ${end.toISOString()}`;

const refused: readonly [name: string, bundle: readonly Text[], sent: readonly Text[], reason: string][] = [
  ["another CA", [other], [serving], `${UNSIGNED}ca"`],
  ["another CA of the same name", [namesake], [serving], `${UNSIGNED}ca"`],
  ["a root, with the intermediate left out", [ca], [deep], `${UNSIGNED}intermediate"`],
  ["CAs that signed each other, and none is trusted", [other], [crossed, leftAgain, right], `${UNSIGNED}left"`],
  ["a CA that was sent and is not trusted", [other], [serving, ca], `${UNSIGNED}ca"`],
  ["an expired CA", [outdatedCa], [serving], `"O=tests, CN=ca" ${validity(expired)}`],
  ["a CA that is not valid yet", [comingCa], [serving], `"O=tests, CN=ca" ${validity(coming)}`],
  ["an expired intermediate", [ca], [deep, outdatedMiddle], `"O=tests, CN=intermediate" ${validity(expired)}`],
  ["an expired certificate", [ca], [outdatedServing], `"O=tests, CN=webhook" ${validity(expired)}`],
  ["an expired certificate without a name", [ca], [nameless], `a certificate without a name ${validity(expired)}`],
  [
    "another CA than that of a certificate without an issuer",
    [ca],
    [namelessAlone],
    "none of its CAs signed the serving certificate, whose issuer is a certificate without a name",
  ],
  ["a line break, as placeholders have it", ["\n"], [serving], UNREADABLE],
  ["garbage", ["nonsense", GARBAGE], [serving], UNREADABLE],
  ["a CA that is cut off", [ca.pem.slice(0, 300)], [serving], UNREADABLE],
  ["no certificate served", [ca], [GARBAGE], "there is no serving certificate that can be read"],
];

for (const [name, bundle, sent, reason] of refused) {
  await tap.test(`distrustOf() refuses by ${name}`, async (t) => {
    const caBundle = Buffer.from(pemOf(...bundle)).toString("base64");
    t.equal(distrustOf({ caBundle, certPem: pemOf(...sent), now }), reason);
  });
}
