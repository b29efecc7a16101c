import tap from "tap";
import { MANAGED_BY, MANAGED_BY_LABEL } from "../../src/api/names.ts";
import type { SecretObject } from "../../src/certs/secret-contents.ts";
import { ServedSecret } from "../../src/controller/served-secret.ts";
import type { ServingPair } from "../../src/webhook/serving-certificate.ts";
import { type IssuedServing, issueServing } from "../webhook/issue-serving.ts";

const NAME = "webhook.example.com";
const [good, foreign] = [await issueServing(NAME), await issueServing("another.example.com")];

function secretOf({ caPem, pair }: Pick<IssuedServing, "caPem" | "pair">): SecretObject {
  const texts = { "tls.crt": pair.certPem, "tls.key": pair.keyPem, "ca.crt": caPem };
  const data = Object.fromEntries(Object.entries(texts).map(([key, text]) => [key, btoa(text)]));
  return { type: "Opaque", metadata: { name: "tls", labels: { [MANAGED_BY_LABEL]: MANAGED_BY } }, data };
}

function serving(pair: ServingPair | undefined) {
  const certificate: { current: ServingPair | undefined } = { current: pair };
  const secret = new ServedSecret({ certificate, serverName: NAME, times: () => [Date.now()] });
  return { certificate, secret };
}

function casIn(caBundle: string | undefined): readonly string[] {
  return atob(caBundle ?? "").match(/-----BEGIN[^]*?-----END CERTIFICATE-----\n/g) ?? [];
}

await tap.test(
  "ServedSecret publishes the CAs of the Secret alone where the replica serves what it holds",
  async (t) => {
    const { secret } = serving(good.pair);
    t.equal(secret.bundleFor(foreign.caBundle), undefined, "nothing was read yet");
    t.ok(secret.saw(secretOf(good), false));
    t.notOk(secret.saw(secretOf(good), false), "once");
    t.equal(secret.bundleFor(foreign.caBundle), good.caBundle);
  },
);

await tap.test("ServedSecret remembers the CA of what is served while the Secret has another pair", async (t) => {
  const { certificate, secret } = serving(good.pair);
  secret.saw(secretOf(good), false);
  secret.saw(secretOf(foreign), false);
  for (const published of [undefined, "", foreign.caBundle]) {
    t.same(casIn(secret.bundleFor(published)).toSorted(), [good.caPem, foreign.caPem].toSorted());
  }
  t.equal(secret.bundleFor(secret.bundleFor("")), secret.bundleFor(""), "and is content with that");
  certificate.current = foreign.pair;
  secret.loaded();
  t.ok(secret.lacksName, "API servers cannot call it");
  t.same(casIn(secret.bundleFor(good.caBundle)).length, 2, "so others may serve what they can");
});

await tap.test("ServedSecret says that the Secret lacks the name, also where what is served has it", async (t) => {
  const { secret } = serving(good.pair);
  t.notOk(secret.lacksName);
  secret.saw(secretOf(foreign), false);
  t.ok(secret.lacksName);
  secret.saw(secretOf({ ...good, pair: { certPem: "", keyPem: "" } }), false);
  t.notOk(secret.lacksName, "where it has no certificate, what is served counts");
  secret.saw(secretOf({ ...good, pair: { certPem: "nonsense", keyPem: "" } }), false);
  t.notOk(secret.lacksName, "what cannot be read is repaired by what keeps the certificates");
});
