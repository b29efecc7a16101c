import t from "tap";
import { specKeyOf, storedVersionsOf } from "../../src/api/crd.ts";
import { isOfKstatus } from "../../src/api/kstatus.ts";
import type { StorageVersionMigration } from "../../src/api/migration.ts";
import { hasFreezeAnnotation } from "../../src/api/owner.ts";
import { CRDS, MERGE_PATCH, MIGRATIONS, WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import {
  createMigration,
  eventReasons,
  installSystem,
  patchStatus,
  readMigration,
  SLOW,
  startController,
  untilState,
} from "./controller-fixture.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";
import { serveWebhook } from "./serve-webhook.ts";
import { installWebhook } from "./webhook-guard.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;
await installSystem(cluster);
const webhook = await installWebhook(cluster);
t.teardown(() => webhook.uninstall());

/** The conditions that are True. */
function trueConditions({ status }: StorageVersionMigration): readonly string[] {
  const conditions = status?.conditions ?? [];
  return conditions.filter((one) => one.status === "True" && !isOfKstatus(one.type)).map(({ type }) => type);
}

await t.test("a StorageVersionMigration takes a CRD through its whole life", async (t) => {
  startController(t, cluster);
  const kind = new TestKind("life");
  await cluster.createStale(kind, 120);
  const created = await createMigration(cluster, kind);
  const ended = await untilState(cluster, created, ["Succeeded"]);
  t.same(await cluster.storedAs(kind), { v1: 120 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  t.match(ended.status, {
    progress: "120/120",
    counts: { migrated: 120, skipped: 0, failed: 0, remaining: 0 },
    startTime: /^\d{4}-.*Z$/,
    completionTime: /^\d{4}-.*Z$/,
    watermark: /^\d+$/,
    crd: specKeyOf((await cluster.crd(kind)).metadata),
  });
  const running = ended.status?.conditions?.find(({ type }) => type === "Running");
  t.match(running, { status: "False", lastUpdateTime: /Z$/ });
  t.equal(ended.spec.continueToken, undefined);
  await eventually(async () => (await eventReasons(cluster, created)).includes("Migrated"), "the Events are there");
  t.same([...(await eventReasons(cluster, created))].toSorted(), [
    "Converged",
    "Frozen",
    "Migrated",
    "Pruned",
    "Unfrozen",
  ]);
  await assertUnfrozen(t, cluster, kind);
  t.ok(webhook.denials() > 0, "the freeze was proven at the webhook");
});

await t.test("F25: a second migration, and one of a CRD that is clean, succeed with nothing to do", async (t) => {
  startController(t, cluster);
  const kind = new TestKind("clean");
  await cluster.createCrd(kind, { storage: "v1", versions: ["v1"] });
  for (let round = 0; round < 2; round++) {
    const ended = await untilState(cluster, await createMigration(cluster, kind), ["Succeeded"]);
    t.match(ended.status?.conditions, [{ type: "Running" }, { type: "Succeeded", reason: "NothingToDo" }]);
  }
  const nobody = await createMigration(cluster, { group: GROUP, version: "v1", resource: "nobodies" });
  const failed = await untilState(cluster, nobody, ["Failed"]);
  t.match(failed.status?.conditions?.at(-2), { type: "Failed", reason: "ResourceNotFound" });
});

await t.test("a StorageVersionMigration rewrites a built-in resource", async (t) => {
  startController(t, cluster);
  const created = await createMigration(cluster, { group: "", version: "v1", resource: "configmaps" });
  const ended = await untilState(cluster, created, ["Succeeded"]);
  t.ok((ended.status?.counts?.skipped ?? 0) > 0);
  t.same(await eventReasons(cluster, created).then((reasons) => reasons.includes("Frozen")), false);
});

await t.test("F19: status shows how far a migration is, on every page", async (t) => {
  startController(t, cluster, SLOW);
  const kind = new TestKind("shown");
  await cluster.createStale(kind, 100);
  const created = await createMigration(cluster, kind);
  const seen = new Set<number>();
  let token: string | undefined;
  await eventually(
    async () => {
      const { status, spec } = await readMigration(cluster, created);
      seen.add(status?.counts?.migrated ?? 0);
      token ??= spec.continueToken;
      return status?.conditions?.some(({ type, status: value }) => type === "Succeeded" && value === "True") === true;
    },
    "the migration succeeded",
    60_000,
  );
  t.ok(seen.size >= 5, `saw ${[...seen].join(", ")}`);
  t.ok(token, "spec.continueToken shows the page");
});

await t.test(
  "two migrations of one resource go one after the other, and a finished one never runs again",
  async (t) => {
    const kind = new TestKind("two");
    await cluster.createStale(kind, 60);
    const first = await createMigration(cluster, kind);
    // Times in the API are cut to the second, and the older one goes first.
    await new Promise((resolve) => setTimeout(resolve, 1_100));
    const second = await createMigration(cluster, kind);
    const controller = startController(t, cluster, { ...SLOW, maxConcurrent: 4 });
    const hasPages = async (): Promise<boolean> => (await readMigration(cluster, first)).status?.progress !== undefined;
    await eventually(hasPages, "the first one rewrites");
    t.notOk(trueConditions(await readMigration(cluster, second)).includes("Running"), "the second one waits");
    await untilState(cluster, first, ["Succeeded"]);
    const ended = await untilState(cluster, second, ["Succeeded"]);
    t.match(ended.status?.conditions?.at(-1), { reason: "NothingToDo" });

    await controller.stop();
    await cluster.setVersions(kind, { storage: "v1alpha1" });
    startController(t, cluster);
    const other = await createMigration(cluster, { group: "", version: "v1", resource: "configmaps" });
    await untilState(cluster, other, ["Succeeded"]);
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1", "v1alpha1"], "nobody migrated it again");
  },
);

await t.test("after a restart the one that ran before comes first", async (t) => {
  const [older, ran] = [new TestKind("older"), new TestKind("ran")];
  await cluster.createStale(older, 1);
  await cluster.createStale(ran, 1);
  const a = await createMigration(cluster, older);
  const b = await createMigration(cluster, ran);
  await patchStatus(cluster, b, { conditions: [{ type: "Running", status: "True" }] });
  startController(t, cluster);
  const [first, second] = [await untilState(cluster, b, ["Succeeded"]), await untilState(cluster, a, ["Succeeded"])];
  t.ok(Number(first.metadata.resourceVersion) < Number(second.metadata.resourceVersion));
});

await t.test(
  "an object that cannot be written fails the migration by name, and the next one has its turn",
  async (t) => {
    startController(t, cluster);
    const [bad, good] = [new TestKind("bad"), new TestKind("good")];
    await cluster.createStale(bad, 3, { specSchema: { type: "object", "x-kubernetes-preserve-unknown-fields": true } });
    await cluster.createStale(good, 3);
    const refuse = await serveWebhook(t, ({ request }: { request: { uid: string; name: string } }) => ({
      apiVersion: "admission.k8s.io/v1",
      kind: "AdmissionReview",
      response: { uid: request.uid, allowed: request.name !== "w1", status: { message: "not this one" } },
    }));
    await api.create(WEBHOOK_CONFIGURATIONS, {
      apiVersion: "admissionregistration.k8s.io/v1",
      kind: "ValidatingWebhookConfiguration",
      metadata: { name: bad.plural },
      webhooks: [
        {
          name: "refuse.example.com",
          clientConfig: refuse.clientConfig,
          rules: [{ apiGroups: [GROUP], apiVersions: ["*"], resources: [bad.plural], operations: ["UPDATE"] }],
          sideEffects: "None",
          admissionReviewVersions: ["v1"],
        },
      ],
    });
    t.teardown(() => api.delete(WEBHOOK_CONFIGURATIONS, { name: bad.plural }));
    await eventually(async () => {
      const ref = { name: "w1", namespace: "default" };
      const patch = { type: "application/merge-patch+json", body: { metadata: { labels: { a: "b" } } } };
      return api.patch(bad.resource("v1"), ref, patch, { dryRun: true }).then(
        () => false,
        () => true,
      );
    }, "the webhook is in force");
    const [failing, next] = [await createMigration(cluster, bad), await createMigration(cluster, good)];
    const failed = await untilState(cluster, failing, ["Failed"]);
    t.match(failed.status, {
      counts: { migrated: 2, failed: 1 },
      failures: [{ namespace: "default", name: "w1", reason: /not this one/ }],
    });
    t.match(failed.status?.conditions?.at(-2), { type: "Failed", reason: "ObjectsNotMigrated" });
    t.same(storedVersionsOf(await cluster.crd(bad)), ["v1alpha1", "v1"]);
    await assertUnfrozen(t, cluster, bad);
    await untilState(cluster, next, ["Succeeded"]);
  },
);

await t.test("manage-stored-versions off only rewrites; off and on again leaves nothing behind", async (t) => {
  const kind = new TestKind("off");
  await cluster.createStale(kind, 5);
  const off = startController(t, cluster, { crdMode: "rewrite" });
  const created = await createMigration(cluster, kind);
  const { status } = await untilState(cluster, created, ["Succeeded"]);
  t.same(await cluster.storedAs(kind), { v1: 5 });
  t.equal(status?.crd, specKeyOf((await cluster.crd(kind)).metadata));
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"], "nothing was pruned");
  t.notOk((await eventReasons(cluster, created)).includes("Frozen"));
  const tooMuch = { type: MERGE_PATCH, body: { status: { storedVersions: ["v1alpha1"] } } };
  await api.patch(CRDS, kind, tooMuch, { subresource: "status" });
  const failed = await untilState(cluster, await createMigration(cluster, kind), ["Failed"]);
  t.match(
    JSON.stringify(failed.status?.conditions),
    /storedVersions is \[v1alpha1\], without the storage version \\"v1\\"/,
  );
  await api.patch(CRDS, kind, { type: MERGE_PATCH, body: { metadata: { labels: { listed: "again" } } } });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"], "an update of the CRD lists it");
  await off.stop();

  const slow = startController(t, cluster, SLOW);
  const again = new TestKind("on");
  await cluster.createStale(again, 100);
  const interrupted = await createMigration(cluster, again);
  await eventually(async () => hasFreezeAnnotation(await cluster.crd(again)), "it is frozen");
  await slow.stop();
  await assertUnfrozen(t, cluster, again);
  startController(t, cluster, { crdMode: "rewrite" });
  await untilState(cluster, interrupted, ["Succeeded"]);
  await assertUnfrozen(t, cluster, again);
  await untilState(cluster, await createMigration(cluster, kind), ["Succeeded"]);
  t.equal((await api.list(MIGRATIONS)).length > 0, true);
});
