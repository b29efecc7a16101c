import tap from "tap";
import { EncryptionMetrics, type ShownEncryption } from "../../../src/old/apiservers/encryption-metrics.ts";
import { serverIdHashOf } from "../../../src/old/apiservers/encryption-agreement.ts";

const ID = serverIdHashOf("apiserver-a");
const [ONE, TWO] = [serverIdHashOf("one"), serverIdHashOf("two")];
const START = "process_start_time_seconds 1.79529975674e+09";
const CONFIG = `apiserver_encryption_config_controller_last_config_info{apiserver_id_hash="${ID}",hash="${ONE}"} 1`;

function read(...lines: readonly string[]): ShownEncryption | string {
  const metrics = new EncryptionMetrics();
  for (const line of ["# HELP x y", "go_info 1", ...lines]) {
    metrics.add(line);
  }
  return metrics.result();
}

function shown(...lines: readonly string[]): ShownEncryption {
  const result = read(...lines);
  if (typeof result === "string") {
    throw new TypeError(result);
  }
  return result;
}

function key(provider: string, hash: string, at: string): string {
  return `apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds{apiserver_id_hash="${ID}",key_id_hash="${hash}",provider_name="${provider}"} ${at}`;
}

function reloads(count: number): string {
  return `apiserver_encryption_config_controller_automatic_reloads_total{apiserver_id_hash="${ID}",status="success"} ${count}`;
}

await tap.test("EncryptionMetrics reads which configuration an API server encrypts with", async (t) => {
  const { configHash, keys, serverIdHash } = shown(START, CONFIG);
  t.same([configHash, serverIdHash, [...keys]], [ONE, ID, []]);
});

await tap.test("EncryptionMetrics takes the key that a KMS v2 plugin named last, and not one that stays", async (t) => {
  const { keys } = shown(
    START,
    CONFIG,
    key("vault", TWO, "1.795299e+09"),
    key("vault", ONE, "1.795300e+09"),
    key("other", TWO, "1.7e+09"),
  );
  t.same(Object.fromEntries(keys), { vault: ONE, other: TWO });
});

await tap.test(
  "EncryptionMetrics has another history after everything that may change how objects are encrypted",
  async (t) => {
    const lines = [START, CONFIG, reloads(1), key("vault", ONE, "100"), key("vault", TWO, "200")];
    const { history } = shown(...lines);
    t.equal(shown(...lines.toReversed()).history, history, "in any order");
    t.equal(
      shown(...lines.slice(0, -1), key("vault", TWO, "260")).history,
      history,
      "a plugin names its key each minute",
    );
    const others = {
      "a restart": [START.replace("674", "675"), ...lines.slice(1)],
      "a reload there and back": [...lines.slice(0, 2), reloads(3), ...lines.slice(3)],
      "a key that was used again in between": [
        ...lines.slice(0, 3),
        key("vault", ONE, "230"),
        key("vault", TWO, "260"),
      ],
      "another key": [...lines, key("vault", serverIdHashOf("three"), "300")],
    };
    for (const [what, changed] of Object.entries(others)) {
      t.not(shown(...changed).history, history, what);
    }
  },
);

await tap.test("EncryptionMetrics says that there is no evidence where the metric is absent", async (t) => {
  t.match(read(START), /runs without --encryption-provider-config, or it is older than Kubernetes 1\.34/);
  const metrics = new EncryptionMetrics();
  t.ok(metrics.isAbsent);
  metrics.add(CONFIG);
  t.notOk(metrics.isAbsent);
});

const oddities: readonly [what: string, lines: readonly string[]][] = [
  ["two configurations", [START, CONFIG, CONFIG.replace(ONE, TWO)]],
  ["a value that is not 1", [START, CONFIG.replace(/ 1$/, " 0")]],
  ["a digest that is none", [START, CONFIG.replace(ONE, "sha256:short")]],
  ["an identity that is no digest", [START, CONFIG.replace(ID, "me")]],
  ["no time at which the process started", [CONFIG]],
  ["a key without a time", [START, CONFIG, key("vault", ONE, "soon")]],
  [
    "keys without end",
    [START, CONFIG, ...Array.from({ length: 1_001 }, (_, index) => key("vault", ONE, String(index)))],
  ],
];

for (const [what, lines] of oddities) {
  await tap.test(`EncryptionMetrics concludes nothing from ${what}`, async (t) => {
    t.match(read(...lines), /^its \/metrics (?:do not )?show/);
  });
}

const KMS_V1 = 'kubernetes_feature_enabled{name="KMSv1",stage="DEPRECATED"}';
await tap.test("EncryptionMetrics concludes nothing where a KMS v1 plugin may encrypt", async (t) => {
  t.match(read(START, CONFIG, `${KMS_V1} 1`), /KMSv1 is on, and nothing shows which key/);
  t.type(read(START, CONFIG, `${KMS_V1} 0`), "object", "negative control");
});
