import { pino } from "pino";
import tap from "tap";
import { WEBHOOK_NAME } from "../../src/api/names.ts";
import { PublishedTrust } from "../../src/certs/published-trust.ts";
import { systemClock } from "../../src/clock.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { ConfigurationKeeper } from "../../src/webhook/configuration-keeper.ts";
import { webhookConfigurationOf } from "../../src/webhook/webhook-configuration.ts";
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
