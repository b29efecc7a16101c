import t from "tap";
import { CRDS, MERGE_PATCH } from "../../src/kube/resources.ts";
import type { CountedEntry } from "../../src/plan/inventory.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { conversionBy, serveConversion } from "./serve-webhook.ts";

const cluster = await Cluster.start(t);

async function planOf(kind: TestKind): Promise<CountedEntry | undefined> {
  const { code, stderr, stdout } = await cluster.ksvm(["plan", kind.name, "-o", "json"]);
  if (code !== 0) throw new Error(stderr);
  return (JSON.parse(stdout) as { items: CountedEntry[] }).items[0];
}

await t.test("plan names a conversion webhook that cannot be called, where a migration needs it", async (t) => {
  const webhook = await serveConversion(t);
  const conversion = conversionBy(webhook);
  const [stale, clean] = [new TestKind("needs"), new TestKind("clean")];
  await cluster.createStale(stale, 3, { conversion });
  await cluster.createCrd(clean, { storage: "v1", conversion });
  await cluster.api.patch(CRDS, stale, { type: MERGE_PATCH, body: { spec: { conversion } } });
  await eventually(async () => (await planOf(stale))?.objects === 3, "the objects are counted");
  const before = await planOf(stale);
  t.equal(before?.conversionProblem, undefined, "negative control: it is up");
  const stored = await cluster.storedAs(stale);

  webhook.setDown(true);
  t.match(await planOf(stale), { action: "migrate", conversionProblem: /conversion webhook for .* failed: Post / });
  t.equal((await planOf(clean))?.conversionProblem, undefined, "a migration of it needs no webhook");
  const { stdout } = await cluster.ksvm(["plan", stale.name]);
  // An API server of Kubernetes 1.30 calls the webhook for a list as well.
  t.match(stdout, /(its conversion webhook cannot be called|objects cannot be listed): .*127\.0\.0\.1/);
  webhook.setDown(false);
  await eventually(async () => (await planOf(stale))?.conversionProblem === undefined, "it is up again");

  const service = { namespace: "default", name: "gone", path: "/" };
  const clientConfig = { url: null, service, caBundle: webhook.clientConfig.caBundle };
  const body = { spec: { conversion: { webhook: { clientConfig } } } };
  await cluster.api.patch(CRDS, stale, { type: MERGE_PATCH, body });
  const names = async () => /service "gone" not found/.test((await planOf(stale))?.conversionProblem ?? "");
  await eventually(names, "a Service that does not exist is named");
  t.match((await cluster.ksvm(["plan", stale.name])).stdout, /service "gone" not found/);
  t.same(await cluster.storedAs(stale), stored, "etcd is as it was");
});
