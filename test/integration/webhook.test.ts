// The webhook of the controller: it denies storage changes of frozen CRDs, restarts without losing a review, blocks nothing else while it is
// stopped, and while API servers do not trust it nothing is pruned.
import { setTimeout as sleep } from "node:timers/promises";
import t from "tap";
import { storedVersionsOf } from "../crd.ts";
import { MIGRATING, OWNER, WEBHOOK_NAME } from "../../src/freeze/rule.ts";
import { CRDS, MERGE_PATCH, WEBHOOK_CONFIGURATIONS } from "../api-client.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { type Controller, startController, WebhookService } from "./controller.ts";
import { TestKind, versionsOf } from "./crd-fixture.ts";
import { kubectlOf } from "./kubectl.ts";
import { installSystem } from "./migrations.ts";
import { createFrozen, StorageChangeLoad, untilDenied } from "./storage-change-load.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;
const kubectl = await kubectlOf(cluster);
const stale = new TestKind("stale");
await Promise.all([installSystem(cluster), cluster.createStale(stale, 3)]);
const [small, large] = await Promise.all([createFrozen(cluster, "small"), createFrozen(cluster, "large", 1_100)]);
const service = await WebhookService.start(t);

function start(): Promise<Controller> {
  return startController(t, cluster, { service, flags: ["--shutdown-drain=2s"], until: "ready" });
}

interface Configuration {
  readonly webhooks: readonly { readonly name: string; readonly clientConfig: { readonly caBundle?: string } }[];
}

async function caBundle(): Promise<string> {
  const { webhooks } = await api.get<Configuration>(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME });
  return webhooks[0]?.clientConfig.caBundle ?? "";
}

/** As a GitOps tool does that replaces the whole configuration by one without a caBundle. */
function emptyCaBundle(): Promise<unknown> {
  const body = [{ op: "replace", path: "/webhooks/0/clientConfig/caBundle", value: "" }];
  return api.patch(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME }, { type: "application/json-patch+json", body });
}

function change(kind: TestKind, body: object, subresource?: "status"): Promise<unknown> {
  return api.patch(CRDS, kind, { type: MERGE_PATCH, body }, subresource === undefined ? {} : { subresource });
}

const TO_V1ALPHA1 = { spec: { versions: versionsOf({ storage: "v1alpha1" }) } };
const LIFT = { metadata: { annotations: { [MIGRATING]: null } } };

const first = await start();

await t.test("a storage change of a frozen CRD is denied, alone or together with the end of its freeze", async (t) => {
  await untilDenied(cluster, small);
  await t.rejects(change(small, TO_V1ALPHA1), { status: 403, message: /StorageVersionFrozen/ });
  await t.rejects(change(small, { ...LIFT, ...TO_V1ALPHA1 }), { status: 403, message: /StorageVersionFrozen/ });
  t.equal((await cluster.crd(small)).spec.versions.find(({ storage }) => storage)?.name, "v1");
});

await t.test("a user who lifts the freeze of an unfinished migration is warned, and not kept from it", async (t) => {
  const freeze = await kubectl(["annotate", "crd", stale.name, `${MIGRATING}=true`, `${OWNER}={}`]);
  t.equal(freeze.code, 0, freeze.stderr);
  const lift = () => kubectl(["annotate", "--dry-run=server", "crd", stale.name, `${MIGRATING}-`]);
  await eventually(async () => (await lift()).stderr.includes(`ksvm status ${stale.name}`), "kubectl shows a warning");
  const lifted = await kubectl(["annotate", "crd", stale.name, `${MIGRATING}-`, `${OWNER}-`]);
  t.equal(lifted.code, 0, lifted.stderr);
});

await t.test("two replicas are restarted one after the other under load, and no review is lost", async (t) => {
  await untilDenied(cluster, large);
  const load = StorageChangeLoad.start(t, cluster, [small], 4);
  const second = await start();
  await first.stop();
  const third = await start();
  await second.stop();
  await sleep(500);
  const { denied, late, others } = await load.stop();
  t.same(others, [], "each storage change is denied by the webhook itself");
  t.ok(denied > 8 && late < denied / 4, `${denied} storage changes`);

  for (let times = 0; times < 3; times++) {
    const before = await caBundle();
    await emptyCaBundle();
    await eventually(
      async () => (await caBundle()) === before,
      "the caBundle that another client emptied is put in again",
    );
    t.equal((await third.health("/readyz")).status, 200, "it stays ready");
  }
  await untilDenied(cluster, small);
  await third.stop();
});

await t.test("with every replica stopped, all works but a storage change of a frozen CRD", async (t) => {
  await t.rejects(change(small, TO_V1ALPHA1), { status: 500, message: /failed calling webhook/ });
  const [v1alpha1, v1] = versionsOf({ storage: "v1" });
  const edits: readonly [what: string, body: object][] = [
    ["a label", { metadata: { labels: { a: "b" } } }],
    ["a version added", { spec: { versions: [v1alpha1, v1, { ...v1, name: "v2", storage: false }] } }],
    ["a version removed", { spec: { versions: [v1] } }],
    ["a version no longer served", { spec: { versions: [{ ...v1alpha1, served: false }, v1] } }],
    ["a schema", { spec: { versions: versionsOf({ storage: "v1", specSchema: { type: "object" } }) } }],
    ["names", { spec: { names: { shortNames: ["sm"] } } }],
    ["the owner", { metadata: { annotations: { [OWNER]: "{}" } } }],
  ];
  for (const [what, body] of edits) await t.resolves(change(small, body), what);
  await t.resolves(change(small, { status: { storedVersions: ["v1"] } }, "status"), "its status");
  const free = new TestKind("free");
  await t.resolves(cluster.createCrd(free, { storage: "v1" }), "a new CRD");
  await t.resolves(change(free, TO_V1ALPHA1), "a storage change of a CRD that is not frozen");
  await t.resolves(change(small, LIFT), "lifting the freeze");
  await t.resolves(change(small, TO_V1ALPHA1), "and then the storage change");
  await t.resolves(api.delete(CRDS, large), "deleting a frozen CRD");
});

await t.test(
  "nothing is pruned while the caBundle is empty, and the same migration prunes once it is not",
  async (t) => {
    await emptyCaBundle();
    const run = await cluster.migrate([stale.name, "--max-idle", "2s"]);
    t.equal(run.code, 1, run.stdout);
    t.match(run.stderr, /\[FreezeNotProven\]/);
    t.same(storedVersionsOf(await cluster.crd(stale)), ["v1alpha1", "v1"]);
    await assertUnfrozen(t, cluster, stale);
    await start();
    const again = await cluster.migrate([stale.name]);
    t.equal(again.code, 0, again.stderr);
    t.same(storedVersionsOf(await cluster.crd(stale)), ["v1"]);
    t.same(await cluster.storedAs(stale), { v1: 3 });
  },
);
