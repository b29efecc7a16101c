// What API servers say about how they encrypt, as their /metrics have it.
import { createHash } from "node:crypto";
import t from "tap";
import { ApiServerMissing } from "../../src/apiservers/find.ts";
import { Client } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import type { HttpAnswer, HttpRequest } from "../../src/kube/http.ts";
import { evidenceOfAll } from "../../src/migrator/migrate-built-in.ts";
import {
  configurationOf,
  encryptionEvidence,
  encryptionIn,
  type EncryptionWish,
} from "../../src/reencrypt/evidence.ts";
import { FakeClock } from "../fake-clock.ts";

const hash = (name: string): string => `sha256:${createHash("sha256").update(name).digest("hex")}`;
const ID = hash("apiserver-a");
const [ONE, TWO] = [hash("one"), hash("two")];
const CONFIG = config(ONE);

function config(digest: string): string {
  return `apiserver_encryption_config_controller_last_config_info{apiserver_id_hash="${ID}",hash="${digest}"} 1`;
}

function key(plugin: string, digest: string, at: string): string {
  const labels = `apiserver_id_hash="${ID}",key_id_hash="${digest}",provider_name="${plugin}"`;
  return `apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds{${labels}} ${at}`;
}

function reloads(count: number): string {
  const labels = `apiserver_id_hash="${ID}",status="success"`;
  return `apiserver_encryption_config_controller_automatic_reloads_total{${labels}} ${count}`;
}

function shown(...lines: readonly string[]) {
  const result = encryptionIn(lines);
  if (typeof result === "string") throw new TypeError(result);
  return result;
}

await t.test("the key that a KMS v2 plugin named last counts, and not one that stays", async (t) => {
  const { configHash, keys } = shown(
    CONFIG,
    key("vault", TWO, "1.795299e+09"),
    key("vault", ONE, "1.795300e+09"),
    key("other", TWO, "1.7e+09"),
  );
  t.equal(configHash, ONE);
  t.same(Object.fromEntries(keys), { vault: ONE, other: TWO });
});

await t.test("whatever may change how objects are encrypted shows, also where it was changed back", async (t) => {
  const lines = [CONFIG, reloads(1), key("vault", ONE, "100"), key("vault", TWO, "200")];
  const { own } = shown(...lines);
  t.equal(shown(...lines.toReversed()).own, own, "in any order");
  const named = [...lines.slice(0, -1), key("vault", TWO, "260")];
  t.equal(shown(...named).own, own, "a plugin names its key each minute");
  const others = {
    "a reload there and back": [CONFIG, reloads(3), ...lines.slice(2)],
    "a key that was used again in between": [...lines.slice(0, 2), key("vault", ONE, "230"), key("vault", TWO, "260")],
    "another key": [...lines, key("vault", hash("three"), "300")],
  };
  for (const [what, changed] of Object.entries(others)) t.not(shown(...changed).own, own, what);
});

await t.test("nothing is concluded from metrics that do not tell", async (t) => {
  const kmsV1 = (value: number): string => `kubernetes_feature_enabled{name="KMSv1",stage="DEPRECATED"} ${value}`;
  const cases: readonly [string, readonly string[], RegExp][] = [
    ["no configuration", [], /runs without --encryption-provider-config, or it is older than Kubernetes 1\.34/],
    ["two configurations", [CONFIG, config(TWO)], /as an API server does/],
    ["a value that is not 1", [CONFIG.replace(/ 1$/, " 0")], /as an API server does/],
    ["a digest that is none", [config("sha256:short")], /as an API server does/],
    ["a key without a time", [CONFIG, key("vault", ONE, "soon")], /as an API server does/],
    ["a key that is no digest", [CONFIG, key("vault", "me", "100")], /as an API server does/],
    ["a KMS v1 plugin that may encrypt", [CONFIG, kmsV1(1)], /KMSv1 is on, and nothing shows which key/],
  ];
  for (const [what, lines, expected] of cases) t.match(encryptionIn(lines), expected, what);
  t.type(encryptionIn([CONFIG, kmsV1(0)]), "object", "negative control");
});

/** Two API servers, and what each shows; what `/healthz` of both answers. */
function serve(metrics: Record<string, readonly string[]>, health?: string) {
  const clock = new FakeClock();
  const send = async ({ address, path }: HttpRequest): Promise<HttpAnswer> => {
    const answer = { status: 200, headers: {}, text: "" };
    if (path === "/healthz") return health === undefined ? { ...answer, status: 500 } : { ...answer, text: health };
    const [host = ""] = address.slice("https://".length);
    return { ...answer, lines: linesOf([`process_start_time_seconds ${host}`, ...(metrics[host] ?? [])]) };
  };
  return { client: new Client({ address: "https://a", send, clock, random: () => 0.5 }), clock };
}

async function* linesOf(lines: readonly string[]): AsyncGenerator<string> {
  yield* lines;
}

const { signal } = new AbortController();
const endpoints = ["https://a", "https://b"];

function ask(client: Client, wish: EncryptionWish = {}, evidence = encryptionEvidence(wish)) {
  return evidenceOfAll(client, { endpoints }, evidence, signal);
}

await t.test("API servers that encrypt alike agree on a configuration", async (t) => {
  const { epoch } = await ask(serve({ a: [CONFIG], b: [CONFIG] }).client);
  t.equal(configurationOf(`hash ${epoch}`), ONE);
  const other = await ask(serve({ a: [CONFIG], b: [CONFIG, reloads(2)] }).client);
  t.not(other.epoch, epoch, "and what one of them changed shows");
});

await t.test("an API server that differs is waited for, and both are named", async (t) => {
  const { client } = serve({ a: [CONFIG], b: [config(TWO)] });
  const error = await ask(client).catch((thrown: unknown) => thrown);
  t.ok(error instanceof ApiServerMissing);
  t.match(error, { message: /https:\/\/a .*https:\/\/b |https:\/\/b .*https:\/\/a / });
  const message = `https://b: it uses encryption configuration ${TWO}, which is not ${ONE} of --expect-config`;
  await t.rejects(ask(client, { expectedConfig: ONE }), { code: "ApiServerMissing", message: new RegExp(message) });
  const keys = serve({ a: [CONFIG, key("vault", ONE, "1")], b: [CONFIG] }, "[+]kms-providers ok");
  await t.rejects(ask(keys.client), {
    code: "ApiServerMissing",
    message: new RegExp(`key ${ONE} of KMS plugin "vault"`),
  });
});

await t.test("an API server that does not tell ends the run", async (t) => {
  const { client } = serve({ a: [CONFIG], b: [] });
  const message = /https:\/\/b does not show which encryption configuration it uses: .*docs\/reencryption\.md/;
  await t.rejects(ask(client), { code: "EncryptionUnknown", message });
});

await t.test("the key of a KMS v2 plugin counts three minutes after it was first shown", async (t) => {
  const lines = [CONFIG, key("vault", ONE, "100")];
  const { client, clock } = serve({ a: lines, b: lines }, "[+]ping ok\n[+]kms-providers ok\nhealthz check passed");
  const evidence = encryptionEvidence();
  await t.rejects(ask(client, {}, evidence), { code: "ApiServerMissing", message: /may take some minutes/ });
  clock.advance(179_000);
  await t.rejects(ask(client, {}, evidence), { code: "ApiServerMissing" });
  clock.advance(1_000);
  t.match((await ask(client, {}, evidence)).epoch, new RegExp(`with key ${ONE} of KMS plugin "vault"`));
});

await t.test("a key that its plugin may not encrypt with is not believed", async (t) => {
  const lines = [CONFIG, key("vault", ONE, "100")];
  await t.rejects(ask(serve({ a: lines, b: lines }).client), { code: "ApiServerMissing", message: /KMS plugins/ });
  const { client } = serve({ a: lines, b: lines }, "[+]ping ok");
  await t.rejects(ask(client), { code: "EncryptionUnknown", message: /does not show its KMS plugins/ });
});

await t.test("who may not read metrics is told so", async (t) => {
  const said = 'forbidden: User "a" cannot get path "/metrics"';
  const text = JSON.stringify({ kind: "Status", reason: "Forbidden", message: said });
  const send = async (): Promise<HttpAnswer> => ({ status: 403, headers: {}, text });
  const client = new Client({ address: "https://a", send, clock: new FakeClock(), random: () => 0.5 });
  const error = await encryptionEvidence()(client, signal).catch((thrown: unknown) => thrown);
  t.notOk(error instanceof ApiError);
  t.match(error, { code: "Forbidden", message: /may not get the nonResourceURL "\/metrics"/ });
});
