import { pino } from "pino";
import tap from "tap";
import { WEBHOOK_NAME } from "../../src/api/names.ts";
import { PublishedTrust } from "../../src/certs/published-trust.ts";
import { systemClock } from "../../src/clock.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { ConfigurationKeeper } from "../../src/webhook/configuration-keeper.ts";
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
