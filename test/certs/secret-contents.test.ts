import forge from "node-forge";
import tap from "tap";
import { publishedBundleOf } from "../../src/certs/ca-bundle.ts";
import { issueCa, issueServing } from "../../src/certs/issue.ts";
import {
  certificatesIn,
  contentsOf,
  factsOf,
  isPairOfItsOwn,
  type SecretObject,
} from "../../src/certs/secret-contents.ts";
import { changeOf } from "../../src/certs/rotation-writes.ts";
import { signed } from "./signed-certificate.ts";

const now = new Date(Math.floor(Date.now() / 1_000) * 1_000);
const HOUR_MS = 3_600_000;
const [old, next] = await Promise.all([issueCa({ now, lifetimeMs: HOUR_MS }), issueCa({ now, lifetimeMs: HOUR_MS })]);
const names = { dnsNames: ["a.b.svc"], ipAddresses: ["192.0.2.1"] };
const serving = await issueServing({ ca: old, now, lifetimeMs: HOUR_MS, ...names });
const TEXTS = { "tls.crt": serving.certPem, "tls.key": serving.keyPem, "ca.crt": old.certPem, "ca.key": old.keyPem };
const INTRODUCED = {
  ...TEXTS,
  "ca.crt": old.certPem + next.certPem,
  "next-ca.crt": next.certPem,
  "next-ca.key": next.keyPem,
};

const META = { name: "tls", uid: "u", resourceVersion: "1" };

function secretOf(texts: Record<string, string>, changes: Partial<SecretObject> = {}): SecretObject {
  const data = Object.fromEntries(
    Object.entries(texts).map(([key, text]) => [key, Buffer.from(text).toString("base64")]),
  );
  const labels = { "app.kubernetes.io/managed-by": "ksvm" };
  return { type: "kubernetes.io/tls", metadata: { ...META, namespace: "ns", labels }, data, ...changes };
}

const [oldPrint, nextPrint] = [old, next].map(({ certPem }) => certificatesIn(certPem)[0]?.fingerprint256);

await tap.test("contentsOf() finds the CA that the key belongs to, and the next one", (t) => {
  const contents = contentsOf(secretOf(INTRODUCED));
  t.equal(contents.signer?.certificate.fingerprint256, oldPrint);
  t.equal(contents.next?.certificate.fingerprint256, nextPrint);
  t.match(factsOf(contents, ["a.b.svc", "192.0.2.1"]), {
    bundle: [{ fingerprint: oldPrint }, { fingerprint: nextPrint }],
    serving: { issuer: oldPrint, coversNames: true, notAfter: now.getTime() + HOUR_MS },
    seenAt: undefined,
  });
  for (const name of ["other.b.svc", "192.0.2.2"]) t.equal(factsOf(contents, [name]).serving?.coversNames, false, name);
  t.end();
});

function flawOf(texts: Record<string, string>, namespace?: string): unknown {
  return factsOf(contentsOf(secretOf(texts)), [], namespace).serving?.flaw;
}

await tap.test("factsOf() says why API servers call no replica by a certificate, whatever signed it", async (t) => {
  t.equal(flawOf(TEXTS, "b"), undefined);
  t.equal(flawOf(TEXTS, "another"), "another installation");
  t.equal(flawOf(TEXTS), undefined, "where the namespace is not told");
  const validity = { from: now, to: new Date(now.getTime() + HOUR_MS), dnsName: "a.b.svc" };
  for (const [isForClients, flaw] of [
    [true, "not for servers"],
    [false, undefined],
  ] as const) {
    const { pem, keys } = await signed("webhook", { ...validity, isForClients });
    t.equal(flawOf({ ...TEXTS, "tls.crt": pem, "tls.key": forge.pki.privateKeyToPem(keys.privateKey) }, "b"), flaw);
  }
});

function inNamespace(texts: Record<string, string>, namespace: string): boolean {
  return isPairOfItsOwn(secretOf(texts, { metadata: { ...META, namespace } }));
}

await tap.test("isPairOfItsOwn() is whether a Secret does not contradict its own pair", (t) => {
  t.ok(inNamespace(TEXTS, "b"));
  t.notOk(inNamespace(TEXTS, "another"), "it was issued for another installation");
  t.notOk(inNamespace({ ...TEXTS, "ca.crt": next.certPem }, "b"), "another CA signed it");
  t.ok(inNamespace({ ...TEXTS, "tls.crt": "nonsense" }, "b"), "what uses it says what is wrong with it");
  t.end();
});

const damages: readonly [name: string, texts: Record<string, string>, missing: object][] = [
  ["a key of another certificate", { "tls.key": old.keyPem }, { serving: undefined }],
  ["a certificate that is cut off", { "tls.crt": serving.certPem.slice(0, 300) }, { serving: undefined }],
  ["a certificate behind its CA", { "tls.crt": old.certPem + serving.certPem }, { serving: undefined }],
  [
    "a certificate before another one that is cut off",
    { "tls.crt": `${serving.certPem}${old.certPem.slice(0, 200)}` },
    { serving: undefined },
  ],
  ["a CA's key that is no key", { "ca.key": "nonsense" }, { signer: undefined }],
  ["a CA that is none", { "ca.crt": serving.certPem, "ca.key": serving.keyPem }, { signer: undefined }],
  ["an empty bundle", { "ca.crt": "" }, { signer: undefined, bundle: [], next: undefined }],
  ["a next CA that is not in the bundle", { "ca.crt": old.certPem }, { next: undefined }],
  ["a next CA without its key", { "next-ca.key": "" }, { next: undefined }],
];

for (const [name, texts, missing] of damages) {
  await tap.test(`contentsOf() takes ${name} for missing`, (t) => {
    t.match(contentsOf(secretOf({ ...INTRODUCED, ...texts })), missing);
    t.end();
  });
}

await tap.test("contentsOf() refuses what belongs to another owner, and takes what is empty", (t) => {
  const metadata = { ...META, namespace: "ns" };
  t.throws(() => contentsOf(secretOf(TEXTS, { metadata })), { code: "CertificateSecretUnusable" });
  t.throws(() => contentsOf(secretOf(TEXTS, { type: "example.com/own" })), { code: "CertificateSecretUnusable" });
  t.doesNotThrow(() => contentsOf(secretOf(TEXTS, { type: "Opaque" })));
  t.match(contentsOf(secretOf({ "tls.crt": "", "tls.key": "\n" }, { metadata })), { bundle: [], signer: undefined });
  t.end();
});

await tap.test("publishedBundleOf() finds our webhook by its name", (t) => {
  const webhook = { name: "crd.kube-storage-version-migrator.io", clientConfig: { caBundle: "YQ==" } };
  t.equal(publishedBundleOf({ metadata: META, webhooks: [{ name: "other" }, webhook] }), "YQ==");
  t.equal(publishedBundleOf({ metadata: META, webhooks: [{ name: webhook.name }] }), "");
  t.equal(publishedBundleOf({ metadata: META, webhooks: [{ name: "other" }] }), undefined);
  t.equal(publishedBundleOf(undefined), undefined);
  t.end();
});

await tap.test("changeOf() walks a rotation through: each step leaves what the next one expects", async (t) => {
  const options: Parameters<typeof changeOf>[2] = {
    namespace: "b",
    service: "a",
    caLifetimeMs: 2 * HOUR_MS,
    servingLifetimeMs: HOUR_MS,
    now: now.getTime(),
    kept: [],
  };
  let texts: Record<string, string> = {};
  const after = async (step: Parameters<typeof changeOf>[0]) => {
    const change = await changeOf(step, contentsOf(secretOf(texts)), options);
    const all = Object.entries({ ...texts, ...change.data });
    texts = Object.fromEntries(all.filter((entry): entry is [string, string] => entry[1] !== undefined));
    return factsOf(contentsOf(secretOf(texts)), ["a.b.svc"]);
  };
  const created = await after("create");
  t.same(created.bundle, [created.signer]);
  t.match(created.serving, { issuer: created.signer?.fingerprint, coversNames: true });
  const introduced = await after("introduceCa");
  t.same(introduced.bundle, [created.signer, introduced.next]);
  t.equal(introduced.serving?.fingerprint, created.serving?.fingerprint, "what is served stays");
  const switched = await after("switchCa");
  t.equal(switched.signer?.fingerprint, introduced.next?.fingerprint);
  t.match(switched, { next: undefined, bundle: introduced.bundle, serving: { issuer: switched.signer?.fingerprint } });
  const dropped = await after("dropOldCas");
  t.same(dropped.bundle, [switched.signer]);
  t.equal(dropped.serving?.fingerprint, switched.serving?.fingerprint);
  const renewed = await after("renewServing");
  t.not(renewed.serving?.fingerprint, dropped.serving?.fingerprint);
  t.same(Object.keys(texts).toSorted(), ["ca.crt", "ca.key", "tls.crt", "tls.key"]);
  await t.rejects(changeOf("switchCa", contentsOf(secretOf(texts)), options), TypeError);
});
