import t from "tap";
import { type CustomResourceDefinition, storedVersionsOf } from "../../src/api/crd.ts";
import { CRDS, MERGE_PATCH } from "../../src/kube/resources.ts";
import { systemClock } from "../../src/clock.ts";
import { lastStorageChangeOf, lastVersionsChangeOf } from "../../src/apiservers/settle.ts";
import { assertNoTraces } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { parallel } from "./parallel.ts";
import { conversionBy, type ServedWebhook, serveConversion } from "./serve-webhook.ts";

const cluster = await Cluster.start(t);
const { signal } = new AbortController();

/** Changes the conversion of a CRD in a second of its own, as API times are cut to the second. */
async function convert(kind: TestKind, conversion: object, fieldManager: string): Promise<CustomResourceDefinition> {
  await systemClock.sleep(1_100, signal);
  const patch = { type: MERGE_PATCH, body: { spec: { conversion } } };
  return cluster.api.patch(CRDS, { name: kind.name }, patch, { fieldManager });
}

/** The bundle of a webhook in another text, as an injector writes it: the certificate twice. */
function withOtherBundle({ clientConfig }: ServedWebhook): object {
  const pem = Buffer.from(clientConfig.caBundle, "base64").toString();
  return { webhook: { clientConfig: { caBundle: Buffer.from(`${pem}\n${pem}`).toString("base64") } } };
}

parallel("Settle counts from the newest of: a change of spec.conversion, but not one of its caBundle", async (t) => {
  const webhook = await serveConversion(t);
  const kind = new TestKind("converted");
  const created = await cluster.createCrd(kind, { storage: "v1" });
  t.equal(lastStorageChangeOf(created), lastVersionsChangeOf(created), "the default is of the creation");

  const changed = await convert(kind, conversionBy(webhook), "operator");
  t.equal(lastVersionsChangeOf(changed), lastVersionsChangeOf(created));
  const changedAt = lastStorageChangeOf(changed) ?? 0;
  t.ok(changedAt > (lastVersionsChangeOf(changed) ?? Number.POSITIVE_INFINITY));

  const injected = await convert(kind, withOtherBundle(webhook), "injector");
  t.ok(injected.metadata.managedFields?.some(({ manager }) => manager === "injector"));
  t.equal(lastStorageChangeOf(injected), changedAt, "an injector owns the bundle alone");

  const moved = { webhook: { clientConfig: { url: `${webhook.clientConfig.url}elsewhere` } } };
  t.ok((lastStorageChangeOf(await convert(kind, moved, "operator")) ?? 0) > changedAt, "another address");
  const none = { strategy: "None", webhook: null };
  const before = lastStorageChangeOf(await cluster.crd(kind)) ?? 0;
  t.ok((lastStorageChangeOf(await convert(kind, none, "another")) ?? 0) > before, "nothing converts any more");
});

for (const [what, isHarmful] of [
  ["spec.conversion changes: the run begins again, and settles", true],
  ["the caBundle of spec.conversion changes: the run goes on", false],
] as const) {
  parallel(`What of a run is in the middle of it when ${what}`, async (t) => {
    const webhook = await serveConversion(t);
    const kind = new TestKind("reconverted");
    await cluster.createStale(kind, 12, isHarmful ? {} : { conversion: conversionBy(webhook) });
    let output = "";
    const ended = cluster.migrate([kind.name, "--max-qps", "3"], { onStdout: (text) => void (output += text) });
    await eventually(async () => ((await cluster.storedAs(kind))["v1"] ?? 0) > 0, "objects are rewritten");
    await convert(kind, isHarmful ? conversionBy(webhook) : withOtherBundle(webhook), "operator");
    t.ok(((await cluster.storedAs(kind))["v1alpha1"] ?? 0) > 0, "the run is not over");
    const { code, stderr } = await ended;
    t.equal(code, 0, stderr);
    t.equal(/spec\.conversion changed, and an API server may still convert/.test(output), isHarmful, output);
    t.equal(output.match(/in-flight writes/g)?.length, isHarmful ? 2 : 1, output);
    t.same(await cluster.storedAs(kind), { v1: 12 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
    await assertNoTraces(t, cluster, kind);
  });
}
