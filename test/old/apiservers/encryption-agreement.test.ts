import tap from "tap";
import {
  agreementOf,
  type Answered,
  type Disagreement,
  serverIdHashOf,
} from "../../../src/old/apiservers/encryption-agreement.ts";
import { encryptionErrorOf } from "../../../src/old/apiservers/encryption-errors.ts";
import { EncryptionMetrics } from "../../../src/old/apiservers/encryption-metrics.ts";
import type { ShownEncryption } from "../../../src/old/apiservers/encryption-metrics.ts";

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
  const same = answer("b", keyed(["vault", "k2"]));
  t.match(agreementOf([a, same], LEASES), { hasKms: true });
});

await tap.test("agreementOf() names the API server that does not show the key of a KMS v2 plugin", async (t) => {
  const [a, b] = [answer("a", keyed(["vault", "k2"])), answer("b")];
  const reason =
    'it does not show which key its KMS plugin "vault" uses, and a (lease-a) does: see whether that plugin answers there; ' +
    "where no configuration names it any more, restart a (lease-a)";
  for (const answers of [
    [a, b],
    [b, a],
  ]) {
    t.same(agreementOf(answers, LEASES), { server: "b (lease-b)", reason, isUntold: true });
  }
  const more = answer("b", keyed(["vault", "k2"], ["gone", "k0"]));
  t.match(agreementOf([a, more], LEASES), { server: "a (lease-a)", reason: /plugin "gone".*restart b \(lease-b\)$/ });
});

const hash = (digit: string): string => `sha256:${digit.repeat(64)}`;

const metricsOf = (server: string, ...more: readonly string[]): Answered => {
  const metrics = new EncryptionMetrics();
  const lines = [
    "process_start_time_seconds 1.76e+09",
    `apiserver_encryption_config_controller_last_config_info{apiserver_id_hash="${serverIdHashOf(`lease-${server}`)}",hash="${hash("c")}"} 1`,
    ...more,
  ];
  for (const line of lines) metrics.add(line);
  return { server, shown: metrics.result() };
};
const keyOf = (server: string, key: string, at: string): string =>
  "apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds" +
  `{apiserver_id_hash="${serverIdHashOf(`lease-${server}`)}",key_id_hash="${hash(key)}",provider_name="vault"} ${at}`;

await tap.test("agreementOf() reads that off metrics as API servers write them", async (t) => {
  const [first, second] = [keyOf("a", "1", "1.7639e+09"), keyOf("a", "2", "1.763900061e+09")];
  const a = metricsOf("a", first, second);
  t.match(agreementOf([a, metricsOf("b")], LEASES), {
    server: "b (lease-b)",
    reason: /plugin "vault"/,
    isUntold: true,
  });
  t.match(agreementOf([a, metricsOf("b", keyOf("b", "1", "1.7639e+09"))], LEASES), { isUntold: false });
  t.match(agreementOf([a, metricsOf("b", keyOf("b", "2", "1.7639e+09"))], LEASES), { hasKms: true });
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

await tap.test("agreementOf() names one that lacks what a user means, and not one that has it", async (t) => {
  const [old, ready] = [answer("a", { configHash: "old" }), answer("b")];
  for (const answers of [
    [old, ready],
    [ready, old],
  ]) {
    t.match(agreementOf(answers, { ...LEASES, configHash: "new" }), {
      server: "a (lease-a)",
      reason: "it uses encryption configuration old, which is not new of --expect-config",
      isUntold: false,
    });
  }
});

/** What a user is told who runs a command. */
function textOf(answers: readonly Answered[], configHash?: string): string {
  return encryptionErrorOf(agreementOf(answers, { ...LEASES, configHash }) as Disagreement, "secrets", {}).message;
}

await tap.test("encryptionErrorOf() advises only what brings API servers to encrypt alike", async (t) => {
  const [a, b] = [answer("a", { configHash: "old" }), answer("b")];
  t.match(textOf([a, b], "new"), /: a \(lease-a\): .*; have it read the new configuration, and run again$/);
  // Which of two is the new one, nothing shows.
  t.match(textOf([a, b]), /: b \(lease-b\): .*; have all of them read the same configuration, and run again$/);
  const keys = [answer("a", keyed(["vault", "k2"])), answer("b", keyed(["vault", "k1"]))];
  t.match(textOf(keys), /key k1, which is not k2 of a \(lease-a\); have all plugins name the same key, and run again$/);
  const told = { server: "b", reason: "r", isUntold: false, todo: "have it read the new configuration" };
  t.match(
    encryptionErrorOf(told, "secrets", { isUnattended: true }).message,
    /: b: r$/,
    "a controller goes on by itself",
  );
});
