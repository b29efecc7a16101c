import net from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import pino from "pino";
import t, { type Test } from "tap";
import { MIGRATING_ANNOTATION } from "../../src/api/names.ts";
import { CRDS, MERGE_PATCH, WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { isDenialBy, WEBHOOK_GUARD } from "../../src/freeze/guard.ts";
import { Metrics } from "../../src/observability/metrics.ts";
import { VALIDATE_PATH } from "../../src/webhook/app.ts";
import { startWebhookServer, type WebhookServer } from "../../src/webhook/server.ts";
import { webhookConfigurationOf } from "../../src/webhook/webhook-configuration.ts";
import { issueServing } from "../webhook/issue-serving.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind, versionsOf } from "./crd-fixture.ts";
import { counted } from "../observability/counted.ts";

/** A storage change is sent this often; one in five on the large CRD. */
const INTERVAL_MS = 100;

const cluster = await Cluster.start(t);
const { api } = cluster;
const { certificate, caBundle } = await issueServing();

/**
 * Stands for the Service of the webhook, which needs nodes: it sends each new connection to the next replica that is
 * ready, and leaves alone those that are open.
 */
async function startBalancer(t: Test) {
  const replicas = new Set<WebhookServer>();
  let turn = 0;
  const server = net.createServer((client) => {
    const ready = [...replicas].filter((replica) => replica.ready() === undefined);
    const replica = ready[turn++ % ready.length];
    if (replica === undefined) {
      client.destroy();
      return;
    }
    const backend = net.connect(replica.port, "127.0.0.1");
    client.pipe(backend).pipe(client);
    client.on("error", () => backend.destroy()).on("close", () => backend.destroy());
    backend.on("error", () => client.destroy()).on("close", () => client.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => server.close());
  return { replicas, port: (server.address() as net.AddressInfo).port };
}

/** A frozen CRD; a large one has a schema of about half a megabyte in each of its two versions. */
async function frozenCrd(word: string, isLarge: boolean) {
  const kind = new TestKind(word);
  const description = "What this field is for, and which values it takes. ".repeat(4);
  const fields = Array.from(
    { length: 2_100 },
    (_, index) => [`field${index}`, { type: "string", description }] as const,
  );
  const specSchema = { type: "object", properties: Object.fromEntries(fields) };
  const shape = isLarge ? { specSchema } : {};
  await cluster.createCrd(kind, { ...shape, storage: "v1alpha1" });
  const body = { metadata: { annotations: { [MIGRATING_ANNOTATION]: "true" } } };
  const crd = await api.patch(CRDS, kind, { type: MERGE_PATCH, body });
  const versions = versionsOf({ ...shape, storage: "v1" });
  const ops = versions.map(({ storage }, index) => ({
    op: "replace",
    path: `/spec/versions/${index}/storage`,
    value: storage,
  }));
  return {
    name: kind.name,
    bytes: JSON.stringify(crd).length,
    flip: { type: "application/json-patch+json", body: ops },
  };
}

type FrozenCrd = Awaited<ReturnType<typeof frozenCrd>>;

/** What came of a storage change: `denied` by the webhook itself, or else what the API server said. */
async function flip({ name, flip: patch }: FrozenCrd): Promise<string> {
  try {
    await api.patch(CRDS, { name }, patch);
    return "accepted";
  } catch (error) {
    const said = error instanceof ApiError ? error.said : String(error);
    return isDenialBy(WEBHOOK_GUARD, name, said) ? "denied" : said;
  }
}

/** Sends storage changes at a steady rate until `work` is done; what came of each, by count. */
async function underLoad(crds: readonly FrozenCrd[], work: () => Promise<void>): Promise<Record<string, number>> {
  const outcomes: Promise<string>[] = [];
  let turn = 0;
  const timer = setInterval(() => {
    const crd = crds[turn++ % crds.length];
    if (crd !== undefined) outcomes.push(flip(crd));
  }, INTERVAL_MS);
  try {
    await work();
  } finally {
    clearInterval(timer);
  }
  const all = await Promise.all(outcomes);
  return Object.fromEntries(
    Object.entries(Object.groupBy(all, (outcome) => outcome)).map(([key, of]) => [key, of?.length ?? 0]),
  );
}

await t.test("two replicas are restarted one after the other under load, and no review is lost", async (t) => {
  const metrics: Metrics[] = [];
  const balancer = await startBalancer(t);
  const start = async (): Promise<WebhookServer> => {
    const own = new Metrics();
    metrics.push(own);
    const options = { host: "127.0.0.1", port: 0, certificate, metrics: own, logger: pino({ level: "silent" }) };
    const server = await startWebhookServer({ ...options, drainMs: 2_000 });
    t.teardown(() => server.close());
    balancer.replicas.add(server);
    return server;
  };
  const countedByAll = async (): Promise<Record<string, number>> => {
    const counts: Record<string, number> = {};
    for (const { webhookReviews } of metrics) {
      for (const [decision, value] of Object.entries(await counted(webhookReviews, "decision"))) {
        counts[decision] = (counts[decision] ?? 0) + value;
      }
    }
    return counts;
  };
  const first = await Promise.all([start(), start()]);
  const url = `https://127.0.0.1:${balancer.port}${VALIDATE_PATH}`;
  await api.create(WEBHOOK_CONFIGURATIONS, {
    ...webhookConfigurationOf({ clientConfig: { url, caBundle }, timeoutSeconds: 10 }),
  });
  const small = await frozenCrd("small", false);
  const large = await frozenCrd("large", true);
  t.ok(large.bytes > 1_000_000, `the large CRD has ${large.bytes} bytes`);
  await eventually(async () => (await flip(large)) === "denied", "the webhook is in force");

  const before = (await countedByAll())["denied"] ?? 0;
  const seconds = { longestClose: 0 };
  const outcomes = await underLoad([small, small, large, small, small], async () => {
    await sleep(1_000);
    for (const old of first) {
      await start();
      const begun = performance.now();
      await old.close();
      seconds.longestClose = Math.max(seconds.longestClose, (performance.now() - begun) / 1_000);
      balancer.replicas.delete(old);
    }
    await sleep(1_000);
  });
  const sent = Object.values(outcomes).reduce((sum, count) => sum + count, 0);
  t.comment(`${sent} storage changes: ${JSON.stringify(outcomes)}; longest close ${seconds.longestClose.toFixed(1)} s`);
  t.same(outcomes, { denied: sent }, "each is denied by the webhook itself");
  t.ok(sent > 20, "under load");
  t.same(await countedByAll(), { denied: before + sent }, "and the replicas counted each of them once");
  const shares = await Promise.all(
    metrics.map(async ({ webhookReviews }) => (await counted(webhookReviews, "decision"))["denied"] ?? 0),
  );
  // An API server keeps few connections, so one replica may see none of them; never both of the old or both of the new ones.
  for (const pair of [shares.slice(0, 2), shares.slice(2)]) {
    t.ok(
      pair.some((count) => count > 0),
      `old and new replicas had their share: ${shares.join(", ")}`,
    );
  }
  t.ok(seconds.longestClose < 2 + 5 + 30, "a replica ends after the drain time and the time to finish");
});
