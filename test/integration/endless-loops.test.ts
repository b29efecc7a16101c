import t from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { messageOf } from "../../src/errors.ts";
import { MERGE_PATCH, WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { GROUP, TestKind, type CrdShape } from "./crd-fixture.ts";
import { parallel } from "./parallel.ts";
import { conversionBy, serveConversion, serveWebhook } from "./serve-webhook.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;

/** How often a run with these flags froze its CRD. */
async function freezesOf(args: readonly string[]) {
  const run = await cluster.migrate([...args, "-o", "json", "--max-freeze-idle", "2s", "--max-idle", "10s"]);
  const events = run.stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as { readonly type?: string });
  return { ...run, freezes: events.filter(({ type }) => type === "frozen").length };
}

/** The name of an object and its new storage version count a moment after the change of the CRD. */
async function storeAs(kind: TestKind, names: readonly string[], version: string): Promise<void> {
  let turn = 0;
  const isStored = async (): Promise<boolean> => {
    const body = { metadata: { labels: { turn: String(turn++) } } };
    for (const name of names) {
      await api.patch(kind.resource(version), { name, namespace: "default" }, { type: MERGE_PATCH, body });
    }
    return (await cluster.storedAs(kind))[version] === names.length;
  };
  await eventually(isStored, `${names.join()} are stored as ${version}`);
}

parallel("objects stored in two versions and a conversion webhook that always refuses: the run ends", async (t) => {
  let isBroken = false;
  const webhook = await serveConversion(t, () => isBroken);
  const kind = new TestKind("bothways");
  const shape: Partial<CrdShape> = { conversion: conversionBy(webhook) };
  await cluster.createStale(kind, 6, shape);
  await storeAs(kind, ["w3", "w4", "w5"], "v1");
  t.same(await cluster.storedAs(kind), { v1alpha1: 3, v1: 3 });
  isBroken = true;
  // An API server lists from a cache that it fills again after a change of the CRD.
  await cluster.setVersions(kind, { ...shape, storage: "v1", statusSubresource: true });
  const whyListFails = (version: string): Promise<string> =>
    api.listMetadata(kind.resource(version), { limit: 500 }).then(() => "", messageOf);
  for (const version of ["v1alpha1", "v1"]) {
    await eventually(
      async () => /cannot be converted/.test(await whyListFails(version)),
      `no list in ${version} passes`,
    );
  }
  t.equal((await api.listMetadata(kind.resource("v1alpha1"), { limit: 1 })).items.length, 1, "a small one does");
  const { code, stdout, freezes } = await freezesOf([kind.name]);
  t.equal(code, 1);
  t.match(stdout, /cannot be converted.*RetryBudgetExceeded|RetryBudgetExceeded.*cannot be converted/);
  t.ok(freezes >= 1 && freezes <= 3, `it froze the CRD ${freezes} times`);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  await assertUnfrozen(t, cluster, kind);
});

parallel("a write that etcd refuses as too large is that object's failure, and the others are migrated", async (t) => {
  const kind = new TestKind("toolarge");
  // The name of the storage version is longer than the one before, and so is what is stored.
  const versions = ["v1", "v1alpha1"];
  await cluster.createCrd(kind, { storage: "v1", versions });
  await cluster.createObjects(kind.resource("v1"), kind.objects(3, "v1"));
  await createLargest(kind, "v1");
  await cluster.setVersions(kind, { storage: "v1alpha1", versions });
  const { code, stdout, freezes } = await freezesOf([kind.name]);
  t.equal(code, 3, stdout);
  t.match(stdout, /"name":"largest","reason":"[^"]*too large/);
  t.equal(freezes, 1);
  t.same(await cluster.storedAs(kind), { v1: 1, v1alpha1: 3 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1", "v1alpha1"]);
});

/** Creates the largest object that etcd takes. */
async function createLargest(kind: TestKind, version: string): Promise<void> {
  const object = kind.object("largest", version);
  const withText = (length: number) => ({ ...object, spec: { text: "x".repeat(length) } });
  let [fits, tooLong] = [1_500_000, 1_580_000];
  while (tooLong - fits > 1) {
    const length = Math.floor((fits + tooLong) / 2);
    const isStored = await api.create(kind.resource(version), withText(length)).then(
      () => true,
      () => false,
    );
    if (isStored) {
      fits = length;
      await api.delete(kind.resource(version), { name: "largest", namespace: "default" });
    } else {
      tooLong = length;
    }
  }
  await api.create(kind.resource(version), withText(fits));
}

parallel("a write that one webhook lets through as a dry-run and no other way ends the run", async (t) => {
  const webhook = await serveWebhook(t, async ({ request }: { request: { uid: string; dryRun?: boolean } }) => {
    // Longer than the webhook's timeout.
    if (request.dryRun !== true) await new Promise((resolve) => setTimeout(resolve, 1_500));
    return {
      apiVersion: "admission.k8s.io/v1",
      kind: "AdmissionReview",
      response: { uid: request.uid, allowed: true },
    };
  });
  const kind = new TestKind("dryrunonly");
  await cluster.createStale(kind, 3);
  await api.create(WEBHOOK_CONFIGURATIONS, {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: "ValidatingWebhookConfiguration",
    metadata: { name: kind.plural },
    webhooks: [
      {
        name: "slow.example.com",
        clientConfig: webhook.clientConfig,
        rules: [{ apiGroups: [GROUP], apiVersions: ["*"], resources: [kind.plural], operations: ["UPDATE"] }],
        sideEffects: "None",
        timeoutSeconds: 1,
        admissionReviewVersions: ["v1"],
      },
    ],
  });
  t.teardown(() => api.delete(WEBHOOK_CONFIGURATIONS, { name: kind.plural }));
  const ref = { name: "w0", namespace: "default" };
  const touch = { type: MERGE_PATCH, body: { metadata: { labels: { touched: "yes" } } } };
  await eventually(
    () =>
      api.patch(kind.resource("v1"), ref, touch).then(
        () => false,
        () => true,
      ),
    "the webhook is in force",
  );
  const { code, stdout, freezes } = await freezesOf([kind.name, "--webhook-wait", "15s"]);
  t.equal(code, 1, stdout);
  t.match(stdout, /RetryBudgetExceeded.*slow\.example\.com/);
  t.ok(freezes >= 2 && freezes <= 5, `it froze the CRD ${freezes} times`);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  await assertUnfrozen(t, cluster, kind);
});
