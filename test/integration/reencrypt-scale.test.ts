import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t from "tap";
import type { NewObject } from "../../src/kube/client.ts";
import { storedWith } from "../control-plane/encryption.ts";
import { Cluster } from "./cluster.ts";
import { optionsOf } from "./encrypted-objects.ts";

const NAMESPACES = { group: "", version: "v1", resource: "namespaces" };
const SECRETS = { group: "", version: "v1", resource: "secrets" };
const RESOURCES = { resources: ["secrets"] };
/** The API server takes Secrets with up to 1 MiB of data, and 256 KiB of annotations. */
const [DATA_BYTES, ANNOTATION_BYTES] = [700_000, 240_000];
const LARGE = 40;
/** What a page is to have at most, as in src/migrator/rewrite/page-size.ts. */
const PAGE_BYTES = 4 * 2 ** 20;
const SMALL = 120;
const QPS = 20;
/** ksvm is this user in the audit log, and no other client is. */
const USER = "rotator";

interface AuditEvent {
  readonly stage: string;
  readonly verb: string;
  readonly requestURI: string;
  readonly requestReceivedTimestamp: string;
  readonly responseStatus?: { readonly code: number };
}

const dir = mkdtempSync(join(tmpdir(), "ksvm-audit-"));
const [policy, log] = [join(dir, "policy.yaml"), join(dir, "audit.log")];
const rules = [{ level: "Metadata", users: [USER] }, { level: "None" }];
writeFileSync(policy, JSON.stringify({ apiVersion: "audit.k8s.io/v1", kind: "Policy", rules }));
t.teardown(() => rmSync(dir, { recursive: true }));

/** What an API server with an audit log encrypts with. */
function withKeys(...keys: readonly string[]) {
  const extraArgs = [`--audit-policy-file=${policy}`, `--audit-log-path=${log}`];
  return { ...optionsOf(0, keys, RESOURCES), extraArgs };
}

const users = [{ name: USER, groups: ["system:masters"] }];
const cluster = await Cluster.start(t, { users, overrides: [withKeys("key0")] });
const { controlPlane } = cluster;

async function createSecrets(namespace: string, count: number, make: (name: string) => object): Promise<void> {
  await cluster.api.create(NAMESPACES, { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } });
  const secrets = Array.from({ length: count }, (_, index): NewObject => {
    const { metadata, ...data } = make(`s${index}`) as NewObject;
    return { apiVersion: "v1", kind: "Secret", ...data, metadata: { ...metadata, namespace } };
  });
  await cluster.createObjects(SECRETS, secrets);
}

/** Rotates the key and re-encrypts. @returns what ksvm asked the API server for Secrets, in order */
async function rotate(keys: readonly string[], flags: readonly string[]) {
  await controlPlane.restartApiserver(0, withKeys(...keys));
  writeFileSync(log, "");
  const kubeconfig = controlPlane.kubeconfigFor(USER);
  const args = ["reencrypt", "secrets", "--settle", "1s", "--kubeconfig", kubeconfig, ...flags];
  const run = await cluster.ksvm(args);
  const events = readFileSync(log, "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as AuditEvent)
    .filter(({ requestURI, stage }) => stage === "ResponseComplete" && requestURI.includes("/secrets"));
  return { ...run, events };
}

/** How many Secrets etcd holds under each key. */
async function keys(): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const { encryptedWith = "none" } of await controlPlane.stored.objectsUnder("/registry/secrets/")) {
    counts[encryptedWith] = (counts[encryptedWith] ?? 0) + 1;
  }
  return counts;
}

await t.test("reencrypt rewrites Secrets of 1 MB, in pages that are limited by their bytes", async (t) => {
  const [text, note] = ["x".repeat(DATA_BYTES), "y".repeat(ANNOTATION_BYTES)];
  await createSecrets("large", LARGE, (name) => ({
    metadata: { name, annotations: { note } },
    stringData: { text },
  }));
  const { code, events, stderr } = await rotate(["key1", "key0"], ["--page-size", "500"]);
  t.equal(code, 0, stderr);
  t.same(await keys(), { [storedWith("key1")]: LARGE });
  const limits = events
    .filter(({ verb }) => verb === "list")
    .map(({ requestURI }) => Number(new URL(requestURI, "https://a").searchParams.get("limit")));
  t.ok(limits.length > 3, `several pages: ${limits.join(" ")}`);
  t.ok(
    limits.every((limit) => limit > 0 && limit * ANNOTATION_BYTES < PAGE_BYTES),
    `no page could be larger: ${limits.join(" ")}`,
  );
  await controlPlane.restartApiserver(0, withKeys("key1"));
  const read = await cluster.api.list<{ data: { text?: string } }>(SECRETS);
  const expected = Buffer.from(text).toString("base64");
  t.ok(read.length === LARGE && read.every(({ data }) => data.text === expected), "every Secret reads back equal");
});

await t.test("reencrypt sends no more requests in a second than --max-qps allows", async (t) => {
  await createSecrets("small", SMALL, (name) => ({ metadata: { name }, stringData: { password: "swordfish" } }));
  const { code, events, stderr } = await rotate(["key2", "key1"], ["--max-qps", String(QPS)]);
  t.equal(code, 0, stderr);
  t.same(await keys(), { [storedWith("key2")]: SMALL + LARGE });
  const sent = events
    .filter(({ verb }) => verb === "patch")
    .map(({ requestReceivedTimestamp }) => Date.parse(requestReceivedTimestamp))
    .toSorted((a, b) => a - b);
  t.equal(sent.length, SMALL + LARGE);
  const seconds = ((sent.at(-1) ?? 0) - (sent[0] ?? 0)) / 1_000;
  // A request may be delayed on its way, and the first one is, where the machine is busy; so this is all that can be said.
  t.ok(seconds > ((sent.length - 1) / QPS) * 0.7, `${seconds} s`);
});
