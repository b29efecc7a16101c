import t, { type Test } from "tap";
import { CRDS } from "../../src/kube/objects.ts";
import { conversionBy, serveConversion, serveWebhook, type ServedWebhook } from "../integration/serve-webhook.ts";
import { GROUP, TestKind } from "../integration/crd-fixture.ts";
import { parallel } from "../integration/parallel.ts";
import { Cluster, eventually, signal } from "./cluster.ts";

const cluster = await Cluster.start(t);
const { client } = cluster;
const CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/** An admission webhook of another owner on the updates of a kind's objects, in force when this returns. */
async function objectWebhook(
  t: Parameters<typeof serveWebhook>[0],
  kind: TestKind,
  decide: (name: string) => object,
): Promise<ServedWebhook> {
  const served = await serveWebhook(t, ({ request }: { request: { uid: string; name: string } }) => ({
    apiVersion: "admission.k8s.io/v1",
    kind: "AdmissionReview",
    response: { uid: request.uid, ...decide(request.name) },
  }));
  const rule = { apiGroups: [GROUP], apiVersions: ["*"], resources: [kind.plural], operations: ["UPDATE"] };
  const webhook = {
    name: "own.example.com",
    clientConfig: served.clientConfig,
    rules: [rule],
    sideEffects: "None",
    timeoutSeconds: 5,
    admissionReviewVersions: ["v1"],
  };
  const apiVersion = "admissionregistration.k8s.io/v1";
  const body = {
    apiVersion,
    kind: "ValidatingWebhookConfiguration",
    metadata: { name: kind.plural },
    webhooks: [webhook],
  };
  await client.create(CONFIGURATIONS, body, { signal });
  t.teardown(() => client.delete(`${CONFIGURATIONS}/${kind.plural}`, { signal }));
  const before = served.calls();
  const touch = { metadata: { labels: { touched: "yes" } } };
  await eventually(async () => {
    await client.patch(cluster.path(kind, "w0"), touch, { dryRun: true, signal }).catch(() => undefined);
    return served.calls() > before;
  }, "the webhook is in force");
  return served;
}

for (const code of [404, 409, 429, 500]) {
  parallel(
    `an object that a webhook denies with ${code} is named, the others are rewritten, nothing is pruned`,
    async (t) => {
      const kind = new TestKind("denied");
      await cluster.createStale(kind, 12);
      let denials = 0;
      await objectWebhook(t, kind, (name) => {
        if (name !== "w3") return { allowed: true };
        denials++;
        return { allowed: false, status: { code, reason: "X", message: `no ${name}` } };
      });
      const { result } = await cluster.migrate(kind);
      t.match(result, { outcome: "incomplete", tally: { rewritten: 11, failed: 1 } });
      t.match(result?.tally?.failures, [{ name: "w3", namespace: "default", reason: /denied the request: no w3/ }]);
      t.ok(denials < 5, "a denial is not tried again");
      t.same(await cluster.storedAs(kind), { v1: 11, v1alpha1: 1 });
      t.same((await cluster.crd(kind)).status?.storedVersions, ["v1alpha1", "v1"]);
      await cluster.assertUnfrozen(t, kind);
    },
  );
}

/** Unchanged fields may stay as they are, but an embedded resource needs a kind: such an object is rejected as a whole. */
const TEMPLATE = {
  type: "object",
  "x-kubernetes-preserve-unknown-fields": true,
  properties: {
    template: { type: "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true },
  },
};

async function createInvalid(kind: TestKind, statusSubresource: boolean): Promise<void> {
  await cluster.createCrd(kind, { storage: "v1alpha1", statusSubresource });
  const objects = kind.objects(3, "v1alpha1").map((object) => ({ ...object, spec: { template: { a: "b" } } }));
  await cluster.createObjects(kind, objects, "v1alpha1");
  await cluster.setVersions(kind, { storage: "v1", statusSubresource, specSchema: TEMPLATE });
  await eventually(
    () =>
      client.patch(cluster.path(kind, "w0"), { metadata: { labels: { a: "b" } } }, { dryRun: true, signal }).then(
        () => false,
        () => true,
      ),
    "objects are rejected",
  );
}

parallel(
  "an object that its own schema rejects is written through its status, and its spec stays as it is",
  async (t) => {
    const kind = new TestKind("invalid");
    await createInvalid(kind, true);
    const before = await cluster.object(kind, "w1");
    const { error, result } = await cluster.migrate(kind);
    t.equal(error, undefined);
    t.match(result, { outcome: "migrated", tally: { rewritten: 3, failed: 0, fieldVersions: { v1alpha1: 3 } } });
    t.same(await cluster.storedAs(kind), { v1: 3 });
    const after = await cluster.object(kind, "w1");
    t.strictSame(after.spec, before.spec);
    t.equal(after.metadata.generation, before.metadata.generation);
  },
);

parallel("an object that its own schema rejects fails and is named where there is no status subresource", async (t) => {
  const kind = new TestKind("nostatus");
  await createInvalid(kind, false);
  const { result } = await cluster.migrate(kind);
  t.match(result, { outcome: "incomplete", tally: { failed: 3 } });
  t.match(result?.tally?.failures[0]?.reason, /spec\.template\.kind: Required value/);
  t.same((await cluster.crd(kind)).status?.storedVersions, ["v1alpha1", "v1"]);
});

parallel("an object that a conversion webhook refuses is named, and the others are rewritten", async (t) => {
  const kind = new TestKind("refused");
  let isRefusing = false;
  const webhook = await serveConversion(t, (name) => isRefusing && name === "w2");
  await cluster.createStale(kind, 5, { conversion: conversionBy(webhook) });
  isRefusing = true;
  const { result } = await cluster.migrate(kind);
  t.match(result, { outcome: "incomplete", tally: { rewritten: 4, failed: 1 } });
  t.match(result?.tally?.failures, [{ name: "w2", reason: /w2 cannot be converted/ }]);
  t.same(await cluster.storedAs(kind), { v1: 4, v1alpha1: 1 });
});

parallel(
  "a conversion webhook that is down pauses the run without a freeze, and it goes on once it is back",
  async (t) => {
    const kind = new TestKind("down");
    const webhook = await serveConversion(t);
    const shape = { conversion: conversionBy(webhook) };
    // Clients have moved to v1 already. So an object that is rewritten can be written again without the webhook.
    await cluster.createCrd(kind, { ...shape, storage: "v1alpha1" });
    await cluster.createObjects(kind, kind.objects(60, "v1"), "v1");
    await cluster.setVersions(kind, { ...shape, storage: "v1" });
    let hasWaited = false;
    const { error, result } = await cluster.migrate(kind, {
      maxQps: 15,
      onEvent: (event) => {
        if (event.type === "progress" && event.tally.rewritten > 2 && !hasWaited) webhook.setDown(true);
        if (event.type !== "waiting" || event.for !== "webhook") return;
        hasWaited = true;
        t.match(event.reason, /conversion webhook for .* failed/);
        void assertNotFrozen(t, kind).finally(() => webhook.setDown(false));
      },
    });
    t.equal(error, undefined);
    t.ok(hasWaited);
    t.match(result, { outcome: "migrated", tally: { failed: 0 } });
    t.same(await cluster.storedAs(kind), { v1: 60 });
    await cluster.assertUnfrozen(t, kind);
  },
);

async function assertNotFrozen(t: Test, kind: TestKind): Promise<void> {
  const { metadata } = await cluster.crd(kind);
  t.equal(metadata.annotations?.["ksvm.sigs.k8s.io/migrating"], undefined, "nothing is frozen while it waits");
}

parallel(
  "a conversion webhook that never comes back ends the run with its message, and nothing stays frozen",
  async (t) => {
    const kind = new TestKind("never");
    const webhook = await serveConversion(t);
    await cluster.createStale(kind, 5, { conversion: conversionBy(webhook) });
    webhook.setDown(true);
    const { error, events } = await cluster.migrate(kind, { maxIdleMs: 40_000 });
    t.match(error?.message, /conversion webhook/);
    t.notOk(events.some(({ type }) => type === "frozen"));
    webhook.setDown(false);
    t.same((await cluster.crd(kind)).status?.storedVersions, ["v1alpha1", "v1"]);
    await cluster.assertUnfrozen(t, kind);
  },
);

parallel("objects that are deleted, created and written meanwhile end in the storage version", async (t) => {
  const kind = new TestKind("busy");
  await cluster.createStale(kind, 80);
  const { name } = kind;
  const over = new AbortController();
  const busy = (async () => {
    for (let n = 0; !over.signal.aborted; n++) {
      const path = cluster.path(kind, `w${n % 80}`);
      await client.patch(path, { metadata: { labels: { n: String(n) } } }, { signal }).catch(() => undefined);
      if (n % 7 === 0) await client.delete(cluster.path(kind, `w${(n * 3) % 80}`), { signal }).catch(() => undefined);
      if (n % 5 === 0) await cluster.createObjects(kind, [kind.object(`new${n}`, "v1alpha1")], "v1alpha1");
    }
  })();
  const { error, result } = await cluster.migrate({ name }, { maxQps: 40 });
  over.abort();
  await busy;
  t.equal(error, undefined);
  t.match(result, { outcome: "migrated", tally: { failed: 0 } });
  t.same(Object.keys(await cluster.storedAs(kind)), ["v1"]);
});

parallel("another client that prunes, or takes the storage version out, is healed", async (t) => {
  const kind = new TestKind("foreign");
  await cluster.createStale(kind, 60);
  const setStored = (storedVersions: string[]): Promise<unknown> =>
    client.patch(`${CRDS}/${kind.name}/status`, { status: { storedVersions } }, { signal });
  let foreign: Promise<unknown> | undefined;
  const { result } = await cluster.migrate(kind, {
    maxQps: 20,
    onEvent: ({ type }) => {
      if (type === "frozen") foreign = setStored(["v1"]).then(() => setStored(["v1alpha1"]));
    },
  });
  await foreign;
  t.match(result, { outcome: "migrated", storedVersions: ["v1"] });
  t.same(await cluster.storedAs(kind), { v1: 60 });
});
