import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import pino from "pino";
import t, { type Test } from "tap";
import { Agent, request } from "undici";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { MIGRATING_ANNOTATION, OWNER_ANNOTATION, WEBHOOK_NAME } from "../../src/api/names.ts";
import { systemClock } from "../../src/clock.ts";
import type { WebhookPart } from "../../src/controller/webhook-part.ts";
import { loadKubeConfig } from "../../src/kube/connect/config.ts";
import { isConflict } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { CRDS, MERGE_PATCH, POLICIES, POLICY_BINDINGS, WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import { Metrics } from "../../src/observability/metrics.ts";
import { findConfiguration, publishBundle } from "../../src/certs/ca-bundle.ts";
import { serverNameOf } from "../../src/certs/service-names.ts";
import { VALIDATE_PATH } from "../../src/webhook/app.ts";
import { ConfigurationKeeper } from "../../src/webhook/configuration-keeper.ts";
import { startWebhookServer } from "../../src/webhook/server.ts";
import { WARN_POLICY_NAME } from "../../src/webhook/warn-policy.ts";
import { type WebhookConfiguration, webhookConfigurationOf } from "../../src/webhook/webhook-configuration.ts";
import { issueServing } from "../webhook/issue-serving.ts";
import { createNamespace, ensure, SETTINGS } from "./certs-fixture.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind, versionsOf } from "./crd-fixture.ts";
import { startWebhookPart } from "./started-webhook-part.ts";

const logger = pino({ level: "silent" });
const cluster = await Cluster.start(t);
const { api } = cluster;
const { certificate, caBundle, pair } = await issueServing(serverNameOf(SETTINGS));
const serving = { host: "127.0.0.1", certificate, logger, drainMs: 0 };
const webhook = await startWebhookServer({ ...serving, port: 0, metrics: new Metrics() });
t.teardown(() => webhook.close());
const CONFIGURATION = webhookConfigurationOf({
  clientConfig: { url: `${webhook.url}${VALIDATE_PATH}`, caBundle },
});
const FLIP = { type: MERGE_PATCH, body: { spec: { versions: versionsOf({ storage: "v1" }) } } };
const FREEZE = { [MIGRATING_ANNOTATION]: "true", [OWNER_ANNOTATION]: '{"lease":"a/b","identity":"c","since":"d"}' };
const LIFT = { [MIGRATING_ANNOTATION]: null };

interface Live {
  readonly metadata: { readonly resourceVersion: string };
  readonly webhooks: readonly {
    readonly clientConfig: { readonly caBundle?: string; readonly url?: string };
    readonly matchConditions: readonly unknown[];
    readonly objectSelector: object;
    readonly failurePolicy: string;
  }[];
}

/** Keeps the configuration for the time of one test, and takes it away after it. */
async function keep(t: Test, wanted: () => WebhookConfiguration | undefined = () => CONFIGURATION) {
  const stop = new AbortController();
  const keeper = new ConfigurationKeeper({ client: api, clock: systemClock, logger, wanted });
  const running = keeper.run(stop.signal);
  t.teardown(async () => {
    stop.abort();
    await running;
    await api.delete(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME });
  });
  return keeper;
}

const live = (): Promise<Live | undefined> => api.find<Live>(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME });

async function isRight(): Promise<boolean> {
  const hook = (await live())?.webhooks[0];
  const { url, caBundle: bundle } = hook?.clientConfig ?? {};
  return bundle === caBundle && url === `${webhook.url}${VALIDATE_PATH}` && hook?.failurePolicy === "Fail";
}

function change(body: object): Promise<unknown> {
  return api.patch(
    WEBHOOK_CONFIGURATIONS,
    { name: WEBHOOK_NAME },
    { type: MERGE_PATCH, body },
    { fieldManager: "other" },
  );
}

function annotate(kind: TestKind, annotations: object): Promise<unknown> {
  return api.patch(CRDS, kind, { type: MERGE_PATCH, body: { metadata: { annotations } } });
}

const config = loadKubeConfig({ kubeconfig: cluster.kubeconfig });
const agent = new Agent({ connect: { ca: cluster.controlPlane.ca } });
t.teardown(() => agent.close());

/** Changes annotations of a CRD, and returns the warning that comes with the answer. */
async function warningOf(path: string, annotations: object): Promise<string | undefined> {
  const { url } = cluster.controlPlane.apiservers[0] ?? { url: "" };
  const answer = await request(`${url}/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${path}`, {
    method: "PATCH",
    dispatcher: agent,
    headers: { authorization: `Bearer ${config.getCurrentUser()?.token}`, "content-type": MERGE_PATCH },
    body: JSON.stringify({ metadata: { annotations } }),
  });
  await answer.body.dump();
  const { warning } = answer.headers;
  return answer.statusCode === 200 ? warning?.toString() : `status ${answer.statusCode}`;
}

async function frozen(word: string): Promise<TestKind> {
  const kind = new TestKind(word);
  await cluster.createCrd(kind, { storage: "v1alpha1" });
  await annotate(kind, FREEZE);
  return kind;
}

await t.test("the configuration is created, and restored whatever happens to it", async (t) => {
  await keep(t);
  await eventually(isRight, "the configuration is there");
  const [hook] = (await live())?.webhooks ?? [];
  const selector = { matchLabels: { never: "true" } };
  const condition = { name: "never", expression: "false" };
  const conditions = hook?.matchConditions ?? [];
  const service = { namespace: "default", name: "elsewhere" };
  const drifts: readonly [what: string, webhooks: readonly object[]][] = [
    ["the caBundle emptied", [{ ...hook, clientConfig: { url: hook?.clientConfig.url, caBundle: "" } }]],
    ["failurePolicy Ignore", [{ ...hook, failurePolicy: "Ignore" }]],
    ["a selector that matches nothing", [{ ...hook, objectSelector: selector }]],
    ["one more match condition", [{ ...hook, matchConditions: [...conditions, condition] }]],
    ["no match condition", [{ ...hook, matchConditions: [] }]],
    ["another address", [{ ...hook, clientConfig: { service, caBundle } }]],
    ["no webhook", []],
    ["a webhook added", [hook ?? {}, { ...hook, name: "other.example.com" }]],
  ];
  for (const [what, webhooks] of drifts) {
    await change({ webhooks });
    const begun = performance.now();
    const isAsBefore = async (): Promise<boolean> => isDeepStrictEqual((await live())?.webhooks, [hook]);
    await eventually(isAsBefore, `${what} is restored`, 10_000);
    t.comment(`${what}: restored after ${Math.round(performance.now() - begun)} ms`);
  }
  await api.delete(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME });
  await eventually(isRight, "the deleted configuration is back", 10_000);
  for (const resource of [POLICIES, POLICY_BINDINGS]) {
    await api.delete(resource, { name: WARN_POLICY_NAME });
    const isBack = async (): Promise<boolean> => (await api.find(resource, { name: WARN_POLICY_NAME })) !== undefined;
    await eventually(isBack, `${resource.resource} is back`, 10_000);
  }
  const before = await live();
  await sleep(1_500);
  t.equal((await live())?.metadata.resourceVersion, before?.metadata.resourceVersion, "what is right is not written");
});

await t.test(
  "a caBundle that another client writes is left to it, and a new one of ours is put in at once",
  async (t) => {
    const url = `${webhook.url}${VALIDATE_PATH}`;
    let wanted: WebhookConfiguration | undefined;
    const keeper = await keep(t, () => wanted);
    await sleep(300);
    t.equal(await live(), undefined, "nothing is written before it is known how it is to be");
    wanted = webhookConfigurationOf({
      clientConfig: { url },
      annotations: { "cert-manager.io/inject-ca-from": "a/b" },
    });
    keeper.refresh();
    await eventually(async () => (await live()) !== undefined, "the configuration is there");
    const [hook] = (await live())?.webhooks ?? [];
    await change({
      webhooks: [{ ...hook, clientConfig: { url, caBundle }, objectSelector: { matchLabels: { a: "b" } } }],
    });
    const isSelecting = async (): Promise<boolean> =>
      Object.keys((await live())?.webhooks[0]?.objectSelector ?? {}).length > 0;
    await eventually(async () => !(await isSelecting()), "the selector is taken out");
    t.equal((await live())?.webhooks[0]?.clientConfig.caBundle, caBundle, "the caBundle of the other client stays");
    const other = (await issueServing()).caBundle;
    wanted = webhookConfigurationOf({ clientConfig: { url, caBundle: other } });
    keeper.refresh();
    await eventually(async () => (await live())?.webhooks[0]?.clientConfig.caBundle === other, "ours is put in");
  },
);

await t.test("a replica that is behind does not put an old CA bundle in the place of a new one", async (t) => {
  const url = `${webhook.url}${VALIDATE_PATH}`;
  const newer = (await issueServing()).caBundle;
  let known = caBundle;
  let looks = 0;
  const stop = new AbortController();
  const keeper = new ConfigurationKeeper({
    client: api,
    clock: systemClock,
    logger,
    wanted: () => webhookConfigurationOf({ clientConfig: { url, caBundle: known } }),
    freshen: async () => {
      looks++;
      // Nothing was heard of the Secret so far.
      if (looks > 1) known = newer;
    },
  });
  const running = keeper.run(stop.signal);
  t.teardown(async () => {
    stop.abort();
    await running;
    await api.delete(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME });
  });
  await eventually(isRight, "the configuration is there");
  // As a replica does: where the keeper writes in between, it reads again.
  const publish = async (): Promise<boolean> => {
    const configuration = await findConfiguration(api, WEBHOOK_NAME, stop.signal);
    try {
      await publishBundle(api, configuration ?? { metadata: {} }, newer, stop.signal);
      return true;
    } catch (error) {
      if (isConflict(error)) return false;
      throw error;
    }
  };
  await eventually(publish, "the newer CA bundle is written");
  const written = (await live())?.metadata.resourceVersion;
  await eventually(async () => known === newer, "it looks at the Secret before it writes");
  await sleep(1_000);
  t.equal((await live())?.metadata.resourceVersion, written, "what another replica wrote stays");
});

await t.test("F31: while something empties the caBundle in a loop it is repaired each time", async (t) => {
  await keep(t);
  await eventually(isRight, "the configuration is there");
  const longest = { ms: 0 };
  let resets = 0;
  const stop = new AbortController();
  const resetting = (async () => {
    while (!stop.signal.aborted) {
      const [hook] = (await live())?.webhooks ?? [];
      await change({ webhooks: [{ ...hook, clientConfig: { url: hook?.clientConfig.url, caBundle: "" } }] });
      resets++;
      const begun = performance.now();
      await eventually(isRight, "the caBundle is restored", 20_000);
      longest.ms = Math.max(longest.ms, performance.now() - begun);
      await sleep(300);
    }
  })();
  await sleep(4_000);
  stop.abort();
  await resetting;
  t.ok(resets >= 2, `${resets} resets`);
  t.comment(`restored after ${Math.round(longest.ms)} ms at the most, ${resets} times`);
  t.ok(longest.ms < 60_000, "soon, on however slow a machine");
});

await t.test("F31: a migration does not prune while the caBundle stays empty", async (t) => {
  const kind = new TestKind("unproven");
  await cluster.createStale(kind, 3);
  await api.create(WEBHOOK_CONFIGURATIONS, { ...CONFIGURATION });
  await change({ webhooks: CONFIGURATION.webhooks.map((hook) => ({ ...hook, clientConfig: { url: webhook.url } })) });
  t.teardown(() => api.delete(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME }));
  const run = await cluster.migrate([kind.name, "--guard", "webhook", "--proof-timeout", "2s"]);
  t.equal(run.code, 1);
  t.match(run.stderr, /\[FreezeNotProven\]/);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  await keep(t);
  const again = await cluster.migrate([kind.name, "--guard", "webhook"]);
  t.equal(again.code, 0, again.stderr);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"], "once it is repaired, the same migration prunes");
});

await t.test("a user who takes the freeze off is warned, and not kept from it", async (t) => {
  await keep(t);
  const kind = new TestKind("warned");
  await cluster.createStale(kind, 1);
  await annotate(kind, FREEZE);
  const lift = (query = ""): Promise<string | undefined> => warningOf(`${kind.name}?dryRun=All${query}`, LIFT);
  await eventually(async () => (await lift()) !== undefined, "there is a warning");
  t.match(
    await lift(),
    new RegExp(`the freeze of CustomResourceDefinition ${kind.name} is lifted.*ksvm status ${kind.name}`),
  );
  t.ok(await lift("&fieldManager=ksvm-freeze"), "whatever the field manager is called");
  const viaStatus = await warningOf(`${kind.name}/status?dryRun=All`, LIFT);
  t.match(viaStatus, /the freeze of .* is lifted/, "and where the status is updated");
  const pruned = { type: MERGE_PATCH, body: { status: { storedVersions: ["v1"] } } };
  await api.patch(CRDS, kind, pruned, { subresource: "status" });
  t.equal(await lift(), undefined, "nothing is left to migrate");
});

function untilLacking(part: WebhookPart, lacking: RegExp): Promise<void> {
  return eventually(async () => lacking.test(part.ready() ?? ""), `it is not ready for ${lacking}: ${part.ready()}`);
}

await t.test("F30: a replica that starts while no API server answers becomes ready by itself later", async (t) => {
  const [apiserver] = cluster.controlPlane.apiservers;
  await apiserver?.kill();
  const certDir = t.testdir({});
  writeFileSync(join(certDir, "tls.crt"), pair.certPem);
  writeFileSync(join(certDir, "tls.key"), pair.keyPem);
  const part = startWebhookPart(t, api, { webhook: { certificates: "files", certDir } });
  await untilLacking(part, /has not been read yet$/);
  await apiserver?.restart();
  await untilLacking(part, /the caBundle of .* is empty$/);
  const [hook] = (await live())?.webhooks ?? [];
  await change({ webhooks: [{ ...hook, clientConfig: { ...hook?.clientConfig, caBundle } }] });
  await eventually(async () => part.ready() === undefined, "it is ready");
});

await t.test(
  "F30: own certificates need no replica that is ready or leads, whatever empties the caBundle",
  async (t) => {
    await createNamespace(api);
    const part = startWebhookPart(t, api);
    await untilLacking(part, /^there is no serving certificate yet$/);
    t.equal(await live(), undefined);
    // What the Job of the installation runs; there is no configuration that it could write to.
    t.match(await ensure(cluster), { state: "current" });
    await eventually(async () => part.ready() === undefined, "it is ready");
    t.match(await ensure(cluster, { rotateNow: true }), { state: "waiting" });
    const answers = new Set<string | undefined>();
    const end = performance.now() + 2_000;
    while (performance.now() < end) {
      const [hook] = (await live())?.webhooks ?? [];
      await change({ webhooks: [{ ...hook, clientConfig: { ...hook?.clientConfig, caBundle: "" } }] });
      answers.add(part.ready());
    }
    t.same([...answers], [undefined], "it stays ready");
  },
);

await t.test("F27: with every replica stopped, all works but a storage change of a frozen CRD", async (t) => {
  await keep(t);
  await eventually(isRight, "the configuration is there");
  const kind = await frozen("locked");
  await eventually(() => api.patch(CRDS, kind, FLIP, { dryRun: true }).then(no, isDenial), "the webhook denies");
  await webhook.close();

  await t.rejects(api.patch(CRDS, kind, FLIP), { status: 500, message: /failed calling webhook/ });
  const [v1alpha1, v1] = versionsOf({ storage: "v1alpha1" });
  const edits: readonly [what: string, body: object][] = [
    ["a label", { metadata: { labels: { a: "b" } } }],
    ["a version added", { spec: { versions: [v1alpha1, v1, { ...v1, name: "v2" }] } }],
    ["a version removed", { spec: { versions: [v1alpha1] } }],
    ["a version no longer served", { spec: { versions: [v1alpha1, { ...v1, served: false }] } }],
    ["a schema", { spec: { versions: versionsOf({ storage: "v1alpha1", specSchema: { type: "object" } }) } }],
    ["names", { spec: { names: { shortNames: ["lk"] } } }],
    ["conversion", { spec: { conversion: { strategy: "None" } } }],
    ["the owner", { metadata: { annotations: { [OWNER_ANNOTATION]: null } } }],
  ];
  for (const [what, body] of edits) {
    await t.resolves(api.patch(CRDS, kind, { type: MERGE_PATCH, body }), what);
  }
  const status = { status: { storedVersions: ["v1alpha1"] } };
  await t.resolves(api.patch(CRDS, kind, { type: MERGE_PATCH, body: status }, { subresource: "status" }), "status");
  const other = new TestKind("free");
  await t.resolves(cluster.createCrd(other, { storage: "v1alpha1" }), "a new CRD");
  await t.resolves(api.patch(CRDS, other, FLIP), "a storage change of a CRD that is not frozen");
  await t.resolves(api.delete(CRDS, other), "deleting one");
  await t.resolves(annotate(kind, LIFT), "taking the annotation off");
  await t.resolves(api.patch(CRDS, kind, FLIP), "and then the storage change");
  const doomed = await frozen("doomed");
  await t.resolves(api.delete(CRDS, doomed), "deleting a frozen one");
});

function no(): boolean {
  return false;
}

function isDenial(error: unknown): boolean {
  return error instanceof ApiError && error.status === 403;
}
