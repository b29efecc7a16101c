import { setTimeout as sleep } from "node:timers/promises";
import t, { type Test } from "tap";
import type { ManagedFieldsEntry } from "../../src/api/meta.ts";
import { WEBHOOK_NAME } from "../../src/api/names.ts";
import { caBundleOf } from "../../src/certs/ca-bundle.ts";
import type { WebhookPart } from "../../src/controller/webhook-part.ts";
import { isConflict } from "../../src/kube/client.ts";
import { APPLY_PATCH, MERGE_PATCH, objectPath, SECRETS, WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import { watchObject } from "../../src/kube/watch.ts";
import { VALIDATE_PATH } from "../../src/webhook/app.ts";
import { webhookConfigurationOf } from "../../src/webhook/webhook-configuration.ts";
import { createNamespace, ensure, NAMESPACE, readTheSecret, SECRET, SETTINGS } from "./certs-fixture.ts";
import { Cluster, eventually } from "./cluster.ts";
import { kubectlOf } from "./kubectl.ts";
import { startWebhookPart } from "./started-webhook-part.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;
const kubectl = await kubectlOf(cluster);
await createNamespace(api);
const REF = { name: WEBHOOK_NAME };
/** As in deploy/base: without a caBundle. */
const MANIFEST = webhookConfigurationOf({
  clientConfig: { service: { namespace: NAMESPACE, name: SETTINGS.service, path: VALIDATE_PATH, port: 443 } },
});

interface Live {
  readonly metadata: {
    readonly name: string;
    readonly resourceVersion: string;
    readonly managedFields: readonly ManagedFieldsEntry[];
  };
  readonly webhooks: readonly { readonly clientConfig: { readonly caBundle?: string } }[];
}

const live = (): Promise<Live> => api.get<Live>(WEBHOOK_CONFIGURATIONS, REF);
const bundleOf = ({ webhooks = [] }: Partial<Live>): string => webhooks[0]?.clientConfig.caBundle ?? "";

function ownersOf({ metadata }: Live): readonly string[] {
  const owners = metadata.managedFields.filter(({ fieldsV1 }) => JSON.stringify(fieldsV1).includes('"f:caBundle"'));
  return owners.map(({ manager = "" }) => manager);
}

/** The caBundle at every write from now on, empty where there is none, until `stop`. */
async function bundlesFromNow() {
  const { resourceVersion } = (await live()).metadata;
  const [stop, bundles] = [new AbortController(), new Array<string>()];
  const watching = (async () => {
    const watch = { ...REF, resourceVersion, signal: stop.signal };
    for await (const event of watchObject<Live>(api.transport, WEBHOOK_CONFIGURATIONS, watch)) {
      if ("object" in event && event.type !== "DELETED") bundles.push(bundleOf(event.object));
    }
  })();
  return {
    stop: async (): Promise<readonly string[]> => {
      stop.abort();
      await watching;
      return bundles;
    },
  };
}

/** What every replica runs. It ends with the test, and its Secret is deleted then. */
function startReplica(t: Test): WebhookPart {
  const afterwards = (): Promise<unknown> => api.delete(SECRETS, { namespace: NAMESPACE, name: SECRET });
  return startWebhookPart(t, api, { afterwards });
}

const reconcilers: readonly [name: string, reconcile: () => Promise<unknown>][] = [
  [
    "server-side apply",
    () => {
      const options = { fieldManager: "gitops", force: true };
      return api.patch(WEBHOOK_CONFIGURATIONS, REF, { type: APPLY_PATCH, body: MANIFEST }, options);
    },
  ],
  ["client-side apply", () => kubectl(["apply", "-f", "-"], MANIFEST)],
  [
    // As Argo CD with ignoreDifferences, managedFieldsManagers and RespectIgnoreDifferences: what that manager owns stays.
    "a replacement that leaves alone what ksvm-certs owns",
    async () => {
      const found = await live();
      const { resourceVersion } = found.metadata;
      const caBundle = ownersOf(found).includes("ksvm-certs") ? { caBundle: bundleOf(found) } : {};
      const webhooks = MANIFEST.webhooks.map((webhook) => ({
        ...webhook,
        clientConfig: { ...(webhook["clientConfig"] as object), ...caBundle },
      }));
      const body = { ...MANIFEST, metadata: { ...MANIFEST.metadata, resourceVersion }, webhooks };
      const path = objectPath(WEBHOOK_CONFIGURATIONS, REF);
      await api.transport.request({ method: "PUT", path, body }).catch((error: unknown) => {
        if (!isConflict(error)) throw error;
      });
    },
  ],
];

for (const [name, reconcile] of reconcilers) {
  await t.test(`the caBundle is never empty beside ${name} every second, also while it is rotated`, async (t) => {
    await ensure(cluster);
    const parts = [startReplica(t), startReplica(t)];
    await eventually(async () => parts.every((part) => part.ready() === undefined), "both replicas are ready");
    const stop = new AbortController();
    const watched = await bundlesFromNow();
    const reconciling = (async () => {
      while (!stop.signal.aborted) {
        await reconcile();
        await sleep(1_000);
      }
    })();
    await sleep(3_000);
    t.match(await ensure(cluster, { rotateNow: true, wait: true, settings: { ...SETTINGS, replicaEndpoints: [] } }), {
      state: "current",
    });
    await sleep(3_000);
    stop.abort();
    await reconciling;
    const bundles = await watched.stop();
    t.same(ownersOf(await live()), ["ksvm-certs"], "one manager owns it");
    t.notOk(bundles.includes(""), "it was never empty");
    const changes = bundles.filter((bundle, index) => bundle !== bundles[index - 1]);
    t.ok(changes.length >= 2, "the rotation was seen");
    // The writes of the rotation, and the first of a reconciler that never wrote before.
    t.ok(bundles.length <= 8, `${bundles.length} writes`);
  });
}

await t.test(
  "a caBundle that a replica applied with all the rest, and then ended, gets its owner, and is never empty",
  async (t) => {
    await ensure(cluster);
    const bundle = caBundleOf(await readTheSecret(cluster)) ?? "";
    const earlier = MANIFEST.webhooks.map((webhook) => ({
      ...webhook,
      clientConfig: { ...(webhook["clientConfig"] as object), caBundle: bundle },
    }));
    const options = { fieldManager: "ksvm-webhook-configuration", force: true };
    await api.patch(
      WEBHOOK_CONFIGURATIONS,
      REF,
      { type: APPLY_PATCH, body: { ...MANIFEST, webhooks: earlier } },
      options,
    );
    t.same(ownersOf(await live()), ["ksvm-webhook-configuration"]);
    const watched = await bundlesFromNow();
    startReplica(t);
    const isAlone = async (): Promise<boolean> => ownersOf(await live()).join(",") === "ksvm-certs";
    await eventually(isAlone, "ksvm-certs alone owns it");
    await sleep(1_500);
    const bundles = await watched.stop();
    t.same([...new Set(bundles)], [bundle]);
    t.ok(bundles.length <= 4, `${bundles.length} writes`);
  },
);

await t.test(
  "a webhook that is deleted, or taken out of its configuration, comes back with its caBundle",
  async (t) => {
    await ensure(cluster);
    const bundle = caBundleOf(await readTheSecret(cluster)) ?? "";
    const part = startReplica(t);
    await eventually(async () => part.ready() === undefined, "the replica is ready");
    for (const [what, takeAway] of [
      ["deleted", () => api.delete(WEBHOOK_CONFIGURATIONS, REF)],
      ["emptied", () => api.patch(WEBHOOK_CONFIGURATIONS, REF, { type: MERGE_PATCH, body: { webhooks: [] } })],
    ] as const) {
      const watched = await bundlesFromNow();
      await takeAway();
      const isBack = async (): Promise<boolean> => {
        const found = await api.find<Live>(WEBHOOK_CONFIGURATIONS, REF);
        return found !== undefined && ownersOf(found).join() === "ksvm-certs" && bundleOf(found) === bundle;
      };
      await eventually(isBack, `what was ${what} is back, and ksvm-certs alone owns the caBundle`);
      const bundles = await watched.stop();
      t.same([...new Set(bundles.slice(what === "emptied" ? 1 : 0))], [bundle], `${what}: each write has the caBundle`);
    }
  },
);
