import tap from "tap";
import { issueSelfSigned } from "../certs/self-signed.ts";
import { ServingCertificate, type ServingPairOutcome } from "../../src/webhook/serving-certificate.ts";

const now = new Date();
const issue = (lifetimeMs = 3_600_000): ReturnType<typeof issueSelfSigned> =>
  issueSelfSigned({ dnsNames: ["localhost"], ipAddresses: [], now, lifetimeMs });
const [first, second] = await Promise.all([issue(), issue(7_200_000)]);

function watched(...at: readonly number[]) {
  let times = at.length === 0 ? [now.getTime()] : at;
  const certificate = new ServingCertificate({ times: () => times });
  const outcomes: ServingPairOutcome["result"][] = [];
  certificate.subscribe(({ result }) => outcomes.push(result));
  return { certificate, outcomes, setTimes: (...values: readonly number[]) => (times = values) };
}

await tap.test("offer() takes good pairs into use, one after the other", (t) => {
  const { certificate, outcomes } = watched();
  t.equal(certificate.current, undefined);
  t.equal(certificate.expiresAt, undefined);
  t.equal(certificate.unusable(), "there is no serving certificate yet");
  for (const { certPem, keyPem } of [first, second]) {
    t.equal(certificate.offer({ certPem, keyPem }), undefined);
    t.same(certificate.current, { certPem, keyPem });
  }
  t.equal(Math.round(((certificate.expiresAt?.getTime() ?? 0) - now.getTime()) / 60_000), 120);
  t.equal(certificate.unusable(), undefined);
  t.equal(certificate.offer({ certPem: second.certPem, keyPem: second.keyPem }), undefined);
  t.same(outcomes, ["loaded", "loaded"], "the pair in use is nothing new");
  t.end();
});

await tap.test(
  "offer() turns down a pair for other names while API servers can call with the one in use",
  async (t) => {
    const times = (): readonly number[] => [now.getTime()];
    const foreign = await issueSelfSigned({ dnsNames: ["a.other.svc"], ipAddresses: [], now, lifetimeMs: 3_600_000 });
    const certificate = new ServingCertificate({ times, serverName: "localhost" });
    t.equal(certificate.offer(foreign), undefined, "there is nothing to lose");
    t.equal(certificate.offer(first), undefined);
    t.match(
      certificate.offer(foreign),
      /^Cannot use the serving certificate: .* is not valid for localhost, .* DNS:a\.other\.svc$/,
    );
    t.equal(certificate.current?.certPem, first.certPem);
    t.equal(certificate.offer(second), undefined);
  },
);

const [, body = ""] = /-----\n([^-]+)/.exec(first.certPem) ?? [];
const bad: readonly [name: string, certPem: string, keyPem: string, reason: RegExp][] = [
  ["empty texts", "", "", /^Cannot read the serving certificate: /],
  [
    "a certificate that is cut off",
    first.certPem.slice(0, 400),
    first.keyPem,
    /^Cannot read the serving certificate: /,
  ],
  ["a key instead of a certificate", first.keyPem, first.keyPem, /^Cannot read the serving certificate: /],
  ["no key", first.certPem, "", /^Cannot read the key of the serving certificate: /],
  ["a key that is cut off", first.certPem, first.keyPem.slice(0, 300), /^Cannot read the key/],
  ["another certificate's key", first.certPem, second.keyPem, /the key belongs to another certificate$/],
  [
    "a chain that is broken",
    `${first.certPem}-----BEGIN CERTIFICATE-----\n${body.slice(0, 200)}\n-----END CERTIFICATE-----\n`,
    first.keyPem,
    /^Cannot use the serving certificate: /,
  ],
];

for (const [name, certPem, keyPem, reason] of bad) {
  await tap.test(`offer() turns down ${name} and keeps the last good pair`, (t) => {
    const { certificate, outcomes } = watched();
    t.match(certificate.offer({ certPem, keyPem }), reason);
    t.equal(certificate.current, undefined);
    t.equal(certificate.offer(second), undefined);
    const told = certificate.offer({ certPem, keyPem }) ?? "";
    t.match(told, reason);
    t.notMatch(told, /\n|BEGIN/, "one line, and nothing of what was offered");
    t.equal(certificate.current?.certPem, second.certPem);
    t.same(outcomes, ["rejected", "loaded", "rejected"]);
    t.end();
  });
}

await tap.test("offer() turns down an expired certificate; one in use becomes unusable", (t) => {
  const { certificate, setTimes } = watched();
  t.equal(certificate.offer(first), undefined);
  const end = certificate.expiresAt?.getTime() ?? 0;
  setTimes(end - 1);
  t.equal(certificate.unusable(), undefined);
  setTimes(end);
  t.equal(certificate.unusable(), `the serving certificate expired at ${new Date(end).toISOString()}`);
  const other = watched(end).certificate;
  t.equal(other.offer(first), `Cannot use the serving certificate: it expired at ${new Date(end).toISOString()}`);
  t.equal(other.current, undefined);
  t.end();
});

await tap.test("offer() takes a certificate with its chain", (t) => {
  const { certificate } = watched();
  t.equal(certificate.offer({ certPem: first.certPem + first.caPem, keyPem: first.keyPem }), undefined);
  t.end();
});

const DAY_MS = 86_400_000;
const future = await issueSelfSigned({
  dnsNames: ["localhost"],
  ipAddresses: [],
  now: new Date(now.getTime() + 30 * DAY_MS),
  lifetimeMs: 90 * DAY_MS,
});

await tap.test("offer() turns down a pair that becomes valid in 30 days, and takes it then", (t) => {
  const { certificate, outcomes, setTimes } = watched();
  certificate.offer(second);
  t.match(certificate.offer(future), /^Cannot use the serving certificate: it is not valid before 20\d\d-/);
  t.equal(certificate.current?.certPem, second.certPem, "the working one stays");
  t.match(certificate.offer(future), /not valid before/);
  t.same(outcomes, ["loaded", "rejected"], "told once, however often it is offered");
  setTimes(now.getTime() + 30 * DAY_MS);
  t.equal(certificate.offer(future), undefined);
  t.equal(certificate.unusable(), undefined);
  setTimes(now.getTime());
  t.match(certificate.unusable(), /^the serving certificate is not valid before 20\d\d-/);
  t.end();
});
