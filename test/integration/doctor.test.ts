import t from "tap";
import { LEASE_KIND } from "../../src/api/lease.ts";
import { MIGRATING_ANNOTATION } from "../../src/api/names.ts";
import type { Finding } from "../../src/doctor/doctor-types.ts";
import { APPLY_PATCH, CRDS, LEASES, MERGE_PATCH, WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import { webhookConfigurationOf } from "../../src/webhook/webhook-configuration.ts";
import { unlessAtLeast } from "../control-plane/features.ts";
import { Cluster } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { leaveFreeze, leaveStorageMigrating } from "./left-behind.ts";
import { leaveFailedInTree, loseObjects, pruneByHand, V1 } from "./lost-objects.ts";
import { startSlowRun } from "./slow-run.ts";
import { installWebhook } from "./webhook-guard.ts";

const NO_IN_TREE = unlessAtLeast(37, "storagemigration.k8s.io/v1");
const cluster = await Cluster.start(t);
const { api } = cluster;

async function doctor(...names: readonly string[]) {
  const { code, stderr, stdout } = await cluster.ksvm(["doctor", ...names, "-o", "json"]);
  const items = stdout === "" ? [] : (JSON.parse(stdout) as { readonly items: readonly Finding[] }).items;
  return { code, stderr, items };
}

async function found(kind: Finding["finding"]): Promise<readonly Finding[]> {
  return (await doctor()).items.filter(({ finding }) => finding === kind);
}

await t.test("doctor finds nothing in a healthy cluster, and changes nothing", async (t) => {
  const kind = new TestKind("healthy");
  await cluster.createCrd(kind, V1);
  const before = await cluster.crd(kind);
  t.match(await cluster.ksvm(["doctor"]), { code: 0, stdout: /^nothing found: \d+ CRDs? looked at\n$/, stderr: "" });
  t.same(await cluster.crd(kind), before);
});

await t.test("doctor finds objects that are unreadable, and says that their number is unknown", async (t) => {
  const kind = new TestKind("lost");
  await loseObjects(cluster, kind, 2);
  const before = await cluster.crd(kind);
  t.match(await doctor(kind.name), {
    code: 5,
    items: [{ finding: "unreadable-objects", object: kind.name, versions: ["v1alpha1"], objects: "unknown" }],
  });
  const { stdout } = await cluster.ksvm(["doctor", kind.plural]);
  t.match(stdout, new RegExp(`^unreadable-objects +${kind.name} +v1alpha1 +unknown +ksvm doctor ${kind.name}`, "m"));
  t.same(await cluster.crd(kind), before);
  t.same(await cluster.storedAs(kind), { v1: 1, v1alpha1: 2 });
  await api.delete(CRDS, { name: kind.name });
});

await t.test("doctor finds stale storedVersions, and no more after a migration", async (t) => {
  const kind = new TestKind("stale");
  await cluster.createStale(kind, 2);
  t.match(await doctor(kind.name), { code: 4, items: [{ finding: "stale-stored-versions", versions: ["v1alpha1"] }] });
  t.equal((await cluster.migrate([kind.name])).code, 0);
  t.match(await doctor(kind.name), { code: 0, items: [] });
});

await t.test("doctor finds what the in-tree migrator pruned after it failed", { skip: NO_IN_TREE }, async (t) => {
  const [kind, other] = [new TestKind("intree"), new TestKind("other")];
  for (const one of [kind, other]) {
    await cluster.createStale(one, 2);
    await pruneByHand(cluster, one);
  }
  await leaveFailedInTree(t, cluster, kind);
  t.match(await doctor(kind.name), {
    code: 5,
    items: [{ finding: "unproven-prune", versions: ["v1alpha1"], objects: 2, meaning: new RegExp(kind.plural) }],
  });
  t.same((await doctor(other.name)).items, [], "negative control: the migration is of another resource");
});

await t.test(
  "doctor tells the freeze of a dead run from that of one that lives, and from another client's",
  async (t) => {
    const [dead, foreign, live] = [new TestKind("dead"), new TestKind("foreign"), new TestKind("live")];
    for (const kind of [dead, foreign]) {
      await cluster.createCrd(kind, V1);
    }
    await leaveFreeze(cluster, dead, `kube-system/ksvm-migrate.${dead.name}`);
    const annotations = { [MIGRATING_ANNOTATION]: "by hand" };
    await api.patch(CRDS, foreign, { type: MERGE_PATCH, body: { metadata: { annotations } } }, { fieldManager: "me" });
    const run = await startSlowRun(cluster, live);
    t.match(await doctor(dead.name, foreign.name, live.name), {
      code: 4,
      items: [
        { finding: "stuck-freeze", object: dead.name, help: `ksvm unfreeze ${dead.name}` },
        { finding: "foreign-freeze", object: foreign.name, meaning: /^another client \(me\)/ },
      ],
    });
    t.equal((await cluster.ksvm(["unfreeze", live.name, "-y"])).code, 0);
    await run.ended;
  },
);

await t.test("doctor finds StorageMigrating that nothing explains", async (t) => {
  const kind = new TestKind("condition");
  await cluster.createCrd(kind, V1);
  await leaveStorageMigrating(cluster, kind);
  t.match(await doctor(kind.name), { code: 4, items: [{ finding: "stuck-storage-migrating" }] });
  t.equal((await cluster.ksvm(["unfreeze", kind.name, "-y"])).code, 0);
  t.match(await doctor(kind.name), { code: 0, items: [] });
});

await t.test(
  "doctor finds the identity Lease of an API server that is gone, and not one that is renewed",
  async (t) => {
    const ref = { namespace: "kube-system", name: "apiserver-gone" };
    const renewTime = new Date(Date.now() - 120_000).toISOString().replace("Z", "000Z");
    const labels = { "apiserver.kubernetes.io/identity": "kube-apiserver" };
    const spec = { holderIdentity: "gone", leaseDurationSeconds: 3_600, renewTime };
    await api.create(LEASES, { ...LEASE_KIND, metadata: { ...ref, labels }, spec });
    const { items } = await doctor();
    t.match(
      items.filter(({ finding }) => finding === "silent-api-server"),
      [{ object: "leases/apiserver-gone", help: /only if/ }],
    );
    t.equal(items.filter(({ finding }) => finding === "silent-api-server").length, 1);
    await api.delete(LEASES, ref);
  },
);

await t.test("doctor finds the webhook that nothing answers for", async (t) => {
  const webhook = await installWebhook(cluster);
  t.same(await found("silent-webhook"), [], "it answers");
  await webhook.uninstall();
  const gone = webhookConfigurationOf({ clientConfig: { url: "https://127.0.0.1:1/validate" } });
  await api.create(WEBHOOK_CONFIGURATIONS, { ...gone });
  t.match(await found("silent-webhook"), [
    { meaning: /^https:\/\/127\.0\.0\.1:1\/validate does not answer from here/ },
  ]);
  await api.delete(WEBHOOK_CONFIGURATIONS, gone.metadata);

  const service = { namespace: "default", name: "ksvm-webhook", path: "/validate" };
  const inCluster = webhookConfigurationOf({ clientConfig: { service } });
  await api.create(WEBHOOK_CONFIGURATIONS, { ...inCluster });
  t.match(await found("silent-webhook"), [{ meaning: /^Service "default\/ksvm-webhook" has no endpoint/ }]);
  const slice = {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: {
      name: "ksvm",
      namespace: "default",
      labels: { "kubernetes.io/service-name": service.name },
    },
    addressType: "IPv4",
    endpoints: [{ addresses: ["192.0.2.1"], conditions: { serving: true } }],
    ports: [{ port: 9443 }],
  };
  const slices = { group: "discovery.k8s.io", version: "v1", resource: "endpointslices" };
  await api.create(slices, slice);
  t.same(await found("silent-webhook"), [], "it has an endpoint that serves");
  await api.patch(
    slices,
    slice.metadata,
    {
      type: APPLY_PATCH,
      body: { ...slice, endpoints: [{ addresses: ["192.0.2.1"], conditions: { serving: false } }] },
    },
    { force: true, fieldManager: "test" },
  );
  t.equal((await found("silent-webhook")).length, 1, "one that does not serve is none");
  await api.delete(slices, slice.metadata);
  await api.delete(WEBHOOK_CONFIGURATIONS, inCluster.metadata);
});

await t.test("doctor says in one line what it cannot do", async (t) => {
  t.match(await cluster.ksvm(["doctor", "secrets"]), {
    code: 1,
    stderr: /^error: .*no CustomResourceDefinition.*\]\n$/,
  });
  t.match(await cluster.ksvm(["doctor", "nothing.example.com"]), { code: 1, stderr: /\[ResourceNotFound\]\n$/ });
  const kubeconfig = cluster.controlPlane.kubeconfigFor("reader");
  t.match(await cluster.ksvm(["doctor", "--kubeconfig", kubeconfig]), {
    code: 1,
    stderr: /^error: .*\[Forbidden\]\n$/,
  });
});
