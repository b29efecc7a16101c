import { pino } from "pino";
import tap from "tap";
import { EARLY_WEBHOOK_NAME, WEBHOOK_NAME } from "../../src/api/names.ts";
import { PublishedTrust } from "../../src/certs/published-trust.ts";
import { systemClock } from "../../src/clock.ts";
import { ApiClient, type KubeObject } from "../../src/kube/client.ts";
import { ConfigurationKeeper } from "../../src/webhook/configuration-keeper.ts";
import { WARN_POLICY_NAME, warnPolicy } from "../../src/webhook/warn-policy.ts";
import { earlyConfigurationOf, webhookConfigurationOf } from "../../src/webhook/webhook-configuration.ts";
import { sendJson, sendStatus, startServer } from "../kube/local-server.ts";
import { issueServing } from "./issue-serving.ts";

const logger = pino({ level: "silent" });

async function until(condition: () => boolean): Promise<void> {
  const startedAt = performance.now();
  while (!condition() && performance.now() - startedAt < 15_000) await systemClock.sleep(20);
}

function configurationOf(caBundle: string, resourceVersion: string): object {
  const webhooks = [{ name: WEBHOOK_NAME, clientConfig: { caBundle } }];
  return { metadata: { name: WEBHOOK_NAME, resourceVersion }, webhooks };
}

// The server here is local: what matters is the order of its answers, and a watch that never says a word.
await tap.test(
  "a replica that waits for its caBundle becomes ready after etcd was restored from a backup",
  async (t) => {
    const { pair, caBundle } = await issueServing();
    let live = configurationOf("", "10");
    let reads = 0;
    const server = await startServer(t, ({ path, query }, response) => {
      if (query.has("watch")) return response.flushHeaders();
      if (!path.includes("validatingwebhookconfigurations")) return sendStatus(response, 404);
      if (!path.endsWith(WEBHOOK_NAME))
        return sendJson(response, 200, { metadata: { resourceVersion: "10" }, items: [] });
      reads++;
      return sendJson(response, 200, live);
    });
    const trust = new PublishedTrust({
      certificate: { current: pair },
      isBundleOptional: false,
      serverName: "localhost",
      times: () => [Date.now()],
      logger,
    });
    const stop = new AbortController();
    const keeper = new ConfigurationKeeper({
      client: new ApiClient(server.transport()),
      clock: systemClock,
      logger,
      wanted: () => undefined,
      observer: trust,
      resyncMs: 20,
    });
    const ended = keeper.run(stop.signal);
    await until(() => reads > 1);
    t.match(trust.lacking(), /is empty/);
    live = configurationOf(caBundle, "5");
    await until(() => trust.lacking() === undefined);
    t.equal(trust.lacking(), undefined);
    stop.abort();
    await ended;
  },
);

/** What AKS adds to the namespaceSelector of every webhook, and adds again whenever it is taken out. */
const OF_AKS = {
  matchExpressions: [
    { key: "control-plane", operator: "NotIn", values: ["true"] },
    { key: "kubernetes.azure.com/managedby", operator: "NotIn", values: ["aks"] },
  ],
};

const WANTED = webhookConfigurationOf({ clientConfig: { url: "https://webhook.example.com/validate" } });
const [SHIPPED = {}] = WANTED.webhooks;
const NEVER = { name: "never", expression: "false" };

const additions: readonly [what: string, added: Readonly<Record<string, unknown>>, isRestored: boolean][] = [
  ["a namespaceSelector is left as it is", {}, false],
  ["an object selector is taken out", { objectSelector: OF_AKS }, true],
  [
    "a match condition is taken out",
    { matchConditions: [...(SHIPPED["matchConditions"] as readonly object[]), NEVER] },
    true,
  ],
];

// A local server: it does not know how to apply, which leaves alone what others added, and replaces what a merge patch says.
for (const [what, added, isRestored] of additions) {
  await tap.test(`of what another client adds to the webhook ${what}`, async (t) => {
    let revision = 10;
    const others = { ...SHIPPED, namespaceSelector: OF_AKS, ...added };
    let live: object = { ...WANTED, metadata: { ...WANTED.metadata, resourceVersion: "10" }, webhooks: [others] };
    let reads = 0;
    let writes = 0;
    const server = await startServer(t, ({ body, headers, method, path, query }, response) => {
      if (query.has("watch")) return response.flushHeaders();
      if (!path.includes("validatingwebhookconfigurations")) return sendStatus(response, 404);
      if (!path.endsWith(WEBHOOK_NAME))
        return sendJson(response, 200, { metadata: { resourceVersion: "10" }, items: [] });
      if (method === "PATCH") {
        writes++;
        const metadata = { ...WANTED.metadata, resourceVersion: String(++revision) };
        const isMerge = headers["content-type"]?.includes("merge-patch") === true;
        live = { ...live, ...(isMerge ? (body as object) : {}), metadata };
      } else reads++;
      return sendJson(response, 200, live);
    });
    const stop = new AbortController();
    const keeper = new ConfigurationKeeper({
      client: new ApiClient(server.transport()),
      clock: systemClock,
      logger,
      wanted: () => WANTED,
      resyncMs: 20,
    });
    const ended = keeper.run(stop.signal);
    await until(() => (isRestored ? writes > 1 : reads > 3));
    // What is right is not written.
    const read = reads + 3;
    await until(() => reads > read);
    stop.abort();
    await ended;
    t.equal(writes, isRestored ? 2 : 0);
    const { webhooks } = live as { readonly webhooks: readonly object[] };
    t.same(webhooks, [{ ...SHIPPED, namespaceSelector: OF_AKS }], "the namespaceSelector stays in each case");
  });
}

const BINDING = warnPolicy().binding;
const EARLY = earlyConfigurationOf({ clientConfig: { url: "https://webhook.example.com/early" } });
const EXEMPT = {
  excludeResourceRules: [{ apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"] }],
};

function ofAnother(wanted: KubeObject, change: object): KubeObject {
  return { ...wanted, ...change };
}

const others: readonly [what: string, path: string, live: KubeObject, wanted: object][] = [
  [
    "a match condition of the webhook that judges early migrations",
    `validatingwebhookconfigurations/${EARLY_WEBHOOK_NAME}`,
    ofAnother(EARLY, { webhooks: [{ ...EARLY.webhooks[0], matchConditions: [NEVER] }] }),
    { webhooks: EARLY.webhooks },
  ],
  [
    "a rule that exempts CRDs from the warning of a lifted freeze",
    `validatingadmissionpolicybindings/${WARN_POLICY_NAME}`,
    ofAnother(BINDING, { spec: { ...BINDING.spec, matchResources: EXEMPT } }),
    { spec: { ...BINDING.spec, matchResources: null, paramRef: null } },
  ],
];

// A local server, as above: it keeps what a merge patch said.
for (const [what, path, added, patch] of others) {
  await tap.test(`${what} is taken out`, async (t) => {
    let live = { ...added, metadata: { ...added.metadata, resourceVersion: "10" } };
    let merged: Readonly<Record<string, unknown>> | undefined;
    const server = await startServer(t, ({ body, headers, method, path: asked, query }, response) => {
      if (query.has("watch")) return response.flushHeaders();
      if (path.startsWith(asked.slice(asked.lastIndexOf("/") + 1)))
        return sendJson(response, 200, { metadata: { resourceVersion: "10" }, items: [] });
      if (!asked.endsWith(path)) return sendStatus(response, 404);
      if (method === "PATCH" && headers["content-type"]?.includes("merge-patch") === true) {
        merged = body as Readonly<Record<string, unknown>>;
        live = { ...live, metadata: { ...live.metadata, resourceVersion: "11" } };
      }
      return sendJson(response, 200, live);
    });
    const stop = new AbortController();
    const keeper = new ConfigurationKeeper({
      client: new ApiClient(server.transport()),
      clock: systemClock,
      logger,
      wanted: () => undefined,
      wantedEarly: () => EARLY,
      resyncMs: 20,
    });
    const ended = keeper.run(stop.signal);
    await until(() => merged !== undefined);
    stop.abort();
    await ended;
    const { metadata: _metadata, ...change } = merged ?? {};
    t.same(change, JSON.parse(JSON.stringify(patch)));
  });
}
