import tap from "tap";
import {
  commonEncodingOf,
  encodingDisagreementOf,
  unencryptedAgreementOf,
} from "../../src/apiservers/encoding-agreement.ts";
import { type Answered, serverIdHashOf } from "../../src/apiservers/encryption-agreement.ts";
import { encryptionErrorOf } from "../../src/apiservers/encryption-errors.ts";
import { encodingIn, type StorageEncoding } from "../../src/apiservers/storage-encoding.ts";

const GATE = 'kubernetes_feature_enabled{name="CBORServingAndStorage",stage="ALPHA"}';

await tap.test("encodingIn() reads the feature gate of custom resources, and no other one", async (t) => {
  t.equal(encodingIn(`${GATE} 1`), "cbor");
  t.equal(encodingIn(`${GATE} 0`), "json");
  t.equal(encodingIn('kubernetes_feature_enabled{stage="BETA",name="CBORServingAndStorage"} 1'), "cbor");
  for (const line of [
    'kubernetes_feature_enabled{name="ClientsAllowCBOR",stage="ALPHA"} 1',
    `# ${GATE} 1`,
    `${GATE} 2`,
    `${GATE} 1 2`,
  ]) {
    t.equal(encodingIn(line), undefined, line);
  }
});

/** Without an EncryptionConfiguration. */
function answer(server: string, encoding?: StorageEncoding, instance: string | undefined = `of ${server}`): Answered {
  return { server, shown: "it shows none", isAbsent: true, encoding, instance };
}

const LEASES = { identities: ["lease-a", "lease-b"] };

await tap.test("encodingDisagreementOf() names the API server that stores custom resources otherwise", async (t) => {
  t.equal(encodingDisagreementOf([answer("a", "cbor"), answer("b", "cbor")], LEASES), undefined);
  t.same(encodingDisagreementOf([answer("a", "cbor"), answer("b", "json")], LEASES), {
    server: "b",
    reason: "it stores custom resources as JSON, and a as CBOR",
    isUntold: false,
    isEncoding: true,
  });
  t.match(encodingDisagreementOf([answer("a"), answer("b", "cbor")], LEASES), {
    server: "b",
    reason: "it stores custom resources as CBOR, and a in an encoding that its /metrics do not show",
  });
  t.equal(encodingDisagreementOf([answer("a"), answer("b", "json")], LEASES), undefined, "older ones store JSON");
  const shown = { configHash: "c", history: "h", keys: new Map<string, string>() };
  const behindOne = (identity: string, encoding: StorageEncoding): Answered => ({
    server: "lb",
    encoding,
    shown: { ...shown, serverIdHash: serverIdHashOf(identity) },
  });
  t.match(encodingDisagreementOf([behindOne("lease-a", "cbor"), behindOne("lease-b", "json")], LEASES), {
    server: "lb (lease-b)",
  });
});

await tap.test("encodingDisagreementOf() names an API server that does not store them as a user means", async (t) => {
  const json = { ...LEASES, encoding: "json" } as const;
  t.equal(encodingDisagreementOf([answer("a", "json"), answer("b", "json")], json), undefined);
  t.match(encodingDisagreementOf([answer("a", "cbor"), answer("b", "cbor")], json), {
    server: "a",
    reason: "it stores custom resources as CBOR, which is not JSON of --expect-encoding",
    isUntold: false,
  });
  t.match(encodingDisagreementOf([answer("a", "json"), answer("b")], json), { server: "b", isUntold: true });
});

await tap.test("commonEncodingOf() is the encoding that every API server shows", async (t) => {
  t.equal(commonEncodingOf([answer("a", "cbor"), answer("b", "cbor")]), "cbor");
  t.equal(commonEncodingOf([answer("a", "json"), answer("b")]), undefined);
  t.equal(commonEncodingOf([]), undefined);
});

await tap.test("unencryptedAgreementOf() wants an answer of as many processes as identity Leases live", async (t) => {
  const [one, two] = [answer("lb", "cbor", "1"), answer("lb", "cbor", "2")];
  const agreed = unencryptedAgreementOf([one, two, one], LEASES, "none");
  t.match(agreed, { configHash: "none", hasKms: false });
  t.same(unencryptedAgreementOf([two, one], LEASES, "none"), agreed, "in any order, however often each is asked");
  t.notSame(unencryptedAgreementOf([one, answer("lb", "cbor", "3")], LEASES, "none"), agreed, "one has restarted");
  t.match(unencryptedAgreementOf([one, one], LEASES, "none"), {
    reason: "1 of them answered, and 2 identity Leases live",
    isUntold: true,
  });
  t.match(unencryptedAgreementOf([], { identities: [] }, "none"), { isUntold: true });
  const { instance: _, ...untold } = answer("a", "cbor");
  t.match(unencryptedAgreementOf([untold], { identities: [] }, "none"), { isUntold: true });
});

await tap.test(
  "encryptionErrorOf() speaks of the encoding, and not of a key, where API servers encode otherwise",
  async (t) => {
    const about = { server: "b", reason: "it stores custom resources as JSON, and a as CBOR", isEncoding: true };
    const differs = encryptionErrorOf({ ...about, isUntold: false }, '"widgets"', {});
    t.match(differs, { code: "NotConverged", message: /^Cannot tell how "widgets" is encoded: b: it stores/ });
    const untold = encryptionErrorOf({ ...about, isUntold: true }, '"widgets"', {});
    t.match(untold, { code: "EncryptionUnknown", message: /see docs\/reencryption\.md$/ });
    t.notMatch(untold.message, "--assume-config-rolled-out");
  },
);
