import { createServer } from "node:tls";
import t from "tap";
import { CA_BUNDLE_FIELD_MANAGER } from "../../src/webhook/bundle-ownership.ts";
import { caBundleOf, findConfiguration, publishBundle } from "../../src/certs/ca-bundle.ts";
import { writeSecret } from "../../src/certs/secret-store.ts";
import { issueSelfSigned } from "../../src/certs/self-signed.ts";
import type { KubeObject } from "../../src/kube/client.ts";
import { WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import {
  ensure,
  installOwn,
  readTheSecret,
  createNamespace,
  serveOnFreshConnections,
  SETTINGS,
} from "./certs-fixture.ts";
import { Cluster, eventually } from "./cluster.ts";
import { createFrozen, describeLoad, StorageChangeLoad, untilDenied } from "./storage-change-load.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;
await createNamespace(api);
let handshakes = 0;
const webhook = await installOwn(t, cluster, { serve: serveOnFreshConnections(() => handshakes++) });
const small = await createFrozen(cluster, "small");
await untilDenied(cluster, small);
const replicaEndpoints = [{ host: "127.0.0.1", port: webhook.port }];
const rotate = () => ensure(cluster, { rotateNow: true, wait: true, settings: { ...SETTINGS, replicaEndpoints } });

await t.test("F28: updates of an annotated CRD at 50/s across a forced rotation see no TLS error", async (t) => {
  const before = handshakes;
  const load = StorageChangeLoad.start(t, cluster, [small], 50);
  await rotate();
  const report = await load.stop();
  console.error(`  hammer: ${describeLoad(report)}, ${handshakes - before} handshakes`);
  t.same(report.others, []);
  t.ok(handshakes - before >= report.sent, "every review came on a connection of its own");
});

await t.test(
  "negative control: a caBundle without the CA that signs is seen by the load, and ensure repairs it",
  async (t) => {
    const { caPem } = await issueSelfSigned({ dnsNames: ["x"], ipAddresses: [], now: new Date(), lifetimeMs: 60_000 });
    const configuration = { name: SETTINGS.webhookConfiguration };
    const reset = [
      { op: "replace", path: "/webhooks/0/clientConfig/caBundle", value: Buffer.from(caPem).toString("base64") },
    ];
    const load = StorageChangeLoad.start(t, cluster, [small], 10);
    await api.patch(WEBHOOK_CONFIGURATIONS, configuration, { type: "application/json-patch+json", body: reset });
    await eventually(async () => load.others.some((text) => text.includes("x509")), "a TLS error is seen");
    await ensure(cluster);
    await load.stop();
    await untilDenied(cluster, small);
    type Holder = KubeObject & { webhooks: { clientConfig: { caBundle: string } }[] };
    const { webhooks, metadata } = await api.get<Holder>(WEBHOOK_CONFIGURATIONS, configuration);
    t.equal(webhooks[0]?.clientConfig.caBundle, caBundleOf(await readTheSecret(cluster)));
    const ours = metadata.managedFields?.filter(({ manager }) => manager === CA_BUNDLE_FIELD_MANAGER);
    t.equal(ours?.length, 1);
    t.match(JSON.stringify(ours?.[0]?.fieldsV1), /"f:clientConfig":\{"f:caBundle":\{\}\}/);
    t.notMatch(JSON.stringify(ours?.[0]?.fieldsV1), /f:failurePolicy|f:rules|f:url/, "it owns nothing else");
  },
);

await t.test(
  "a caBundle that another client resets in mid-rotation delays the new CA until it is seen again",
  async (t) => {
    const load = StorageChangeLoad.start(t, cluster, [small], 10);
    const steps: string[] = [];
    const before = caBundleOf(await readTheSecret(cluster));
    const body = [{ op: "replace", path: "/webhooks/0/clientConfig/caBundle", value: before }];
    let reset: Promise<unknown> | undefined;
    const onStep = (text: string): void => {
      steps.push(text);
      // What a GitOps tool does that applies the bundle it knows.
      if (text.startsWith("every API server") && reset === undefined) {
        const ref = { name: SETTINGS.webhookConfiguration };
        reset = api.patch(WEBHOOK_CONFIGURATIONS, ref, { type: "application/json-patch+json", body });
      }
    };
    await ensure(cluster, { rotateNow: true, wait: true, onStep, settings: { ...SETTINGS, replicaEndpoints } });
    await reset;
    t.same((await load.stop()).others, []);
    t.equal(steps.filter((text) => text.startsWith("every API server")).length, 2, steps.join("\n"));
  },
);

await t.test("a replica that serves the old certificate keeps the old CA in the bundle", async (t) => {
  // A replica that got stuck: it serves what was current once.
  const pair = webhook.certificate.current;
  const stuck = createServer({ cert: pair?.certPem, key: pair?.keyPem }).listen(0, "127.0.0.1");
  t.teardown(() => stuck.close());
  await eventually(async () => stuck.listening, "it listens");
  const address = stuck.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  const settings = {
    ...SETTINGS,
    replicaEndpoints: [...replicaEndpoints, { host: "127.0.0.1", port }],
    timeoutMs: 3_000,
  };
  await t.rejects(ensure(cluster, { rotateNow: true, wait: true, settings }), {
    code: "RotationStuck",
    message: new RegExp(`127.0.0.1:${port} serve a certificate of the old CA`),
  });
  t.match(await ensure(cluster, { settings }), { state: "waiting" });
  const bundle = Buffer.from(caBundleOf(await readTheSecret(cluster)) ?? "", "base64").toString();
  t.equal(bundle.split("BEGIN CERTIFICATE").length - 1, 2, "both CAs are trusted");
  stuck.close();
  t.match(await ensure(cluster, { settings: { ...SETTINGS, replicaEndpoints } }), { state: "current" });
  await untilDenied(cluster, small);
});

await t.test("a process that fell asleep writes neither an old caBundle nor an old Secret", async (t) => {
  const { signal } = new AbortController();
  const configuration = await findConfiguration(api, SETTINGS.webhookConfiguration, signal);
  const secret = await readTheSecret(cluster);
  await rotate();
  if (configuration === undefined) throw new Error("there is a configuration");
  await t.rejects(publishBundle(api, configuration, caBundleOf(secret) ?? "", signal), { code: "Conflict" });
  const ref = { namespace: SETTINGS.namespace, name: SETTINGS.secret };
  await t.rejects(writeSecret(api, ref, { before: secret, change: { data: {} } }, signal), { code: "Conflict" });
});
