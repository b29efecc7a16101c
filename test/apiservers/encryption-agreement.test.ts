import tap from "tap";
import { agreementOf, type Answered, serverIdHashOf } from "../../src/apiservers/encryption-agreement.ts";
import type { ShownEncryption } from "../../src/apiservers/encryption-metrics.ts";

function answer(server: string, fields: Partial<ShownEncryption> = {}): Answered {
  const shown = { serverIdHash: serverIdHashOf(`lease-${server}`), configHash: "new", keys: new Map(), history: "h" };
  return { server, shown: { ...shown, ...fields } };
}

function keyed(...keys: readonly [string, string][]): Partial<ShownEncryption> {
  return { keys: new Map(keys) };
}

const LEASES = { identities: ["lease-a", "lease-b"] };
const ALIKE = [answer("a"), answer("b")];

await tap.test("agreementOf() finds that all API servers encrypt alike", async (t) => {
  const agreed = agreementOf(ALIKE, LEASES);
  t.match(agreed, { configHash: "new", hasKms: false });
  t.same(
    agreementOf([...ALIKE, answer("a")].toReversed(), LEASES),
    agreed,
    "in any order, however often each is asked",
  );
  t.not(
    (agreementOf([answer("a"), answer("b", { history: "other" })], LEASES) as { fingerprint: string }).fingerprint,
    (agreed as { fingerprint: string }).fingerprint,
    "and tells two looks apart between which one of them changed something",
  );
});

await tap.test("agreementOf() names the API server that uses another configuration", async (t) => {
  t.match(agreementOf([answer("a"), answer("b", { configHash: "old" })], LEASES), {
    server: "b (lease-b)",
    reason: "it uses encryption configuration old, which is not new of a (lease-a)",
    isUntold: false,
  });
});

await tap.test("agreementOf() compares the keys of each KMS v2 plugin that both API servers show", async (t) => {
  const [a, b] = [answer("a", keyed(["vault", "k2"])), answer("b", keyed(["vault", "k1"]))];
  t.match(agreementOf([a, b], LEASES), {
    server: "b (lease-b)",
    reason: /KMS plugin "vault" uses key k1, which is not k2 of a/,
  });
  t.match(agreementOf([a, answer("b", keyed(["vault", "k2"], ["gone", "k0"]))], LEASES), { hasKms: true });
});

await tap.test("agreementOf() finds nothing without an answer of every identity Lease", async (t) => {
  t.match(agreementOf([answer("a"), answer("a")], LEASES), { server: /identity Lease lease-b/, isUntold: true });
  t.match(agreementOf([], { identities: [] }), { isUntold: true });
  t.match(agreementOf([answer("a"), { server: "b", shown: "it is silent" }], LEASES), {
    server: "b",
    reason: "it is silent",
    isUntold: true,
  });
});

await tap.test(
  "agreementOf() names an API server that does not use the configuration which a user means",
  async (t) => {
    t.match(agreementOf(ALIKE, { ...LEASES, configHash: "newer" }), {
      server: "a",
      reason: "it uses encryption configuration new, which is not newer of --expect-config",
    });
    t.match(agreementOf(ALIKE, { ...LEASES, configHash: "new" }), { configHash: "new" });
  },
);
