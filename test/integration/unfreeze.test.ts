import t from "tap";
import { MIGRATING, OWNER } from "../../src/freeze/rule.ts";
import { CRDS, MERGE_PATCH, WEBHOOK_CONFIGURATIONS } from "../api-client.ts";
import { webhookConfigurationOf } from "../../src/webhook/webhook-configuration.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind, versionsOf } from "./crd-fixture.ts";
import { leaveFreeze } from "./left-behind.ts";
import { INTERRUPTED_FLAGS, startSlowRun } from "./slow-run.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;
const flip = (storage: string) => ({ type: MERGE_PATCH, body: { spec: { versions: versionsOf({ storage }) } } });

function unfreeze(...args: readonly string[]) {
  return cluster.ksvm(["unfreeze", "-y", ...args]);
}

async function isFlipAccepted(kind: TestKind): Promise<boolean> {
  return api.patch(CRDS, kind, flip("v1alpha1"), { dryRun: true }).then(
    () => true,
    () => false,
  );
}

await t.test("unfreeze ends a run under way without pruning", async (t) => {
  const kind = new TestKind("running");
  const run = await startSlowRun(cluster, kind, { flags: INTERRUPTED_FLAGS });
  const { code, stdout, stderr } = await unfreeze(kind.name);
  t.equal(code, 0, stderr);
  t.match(stderr, /is frozen by .* \(Lease "kube-system\/ksvm-migrate\..*"\) since 20.*ends Failed \(FreezeLifted\)/s);
  t.match(stdout, new RegExp(`"${kind.name}" is no longer frozen`));
  t.match(await run.ended, { code: 1, stderr: /\[FreezeLifted\]/ });
  t.same((await cluster.crd(kind)).status?.storedVersions, ["v1alpha1", "v1"]);
  await assertUnfrozen(t, cluster, kind);
});

await t.test("unfreeze takes off what a dead run left, while the webhook is down", async (t) => {
  const clientConfig = {
    url: "https://127.0.0.1:1/validate",
    caBundle: Buffer.from(cluster.controlPlane.ca).toString("base64"),
  };
  const configuration = webhookConfigurationOf({ clientConfig });
  await api.create(WEBHOOK_CONFIGURATIONS, { ...configuration });
  t.teardown(() => api.delete(WEBHOOK_CONFIGURATIONS, configuration.metadata));
  const kind = new TestKind("dead");
  await cluster.createCrd(kind, { storage: "v1" });
  await leaveFreeze(cluster, kind);
  const isBlocked = async (): Promise<boolean> =>
    api.patch(CRDS, kind, flip("v1alpha1"), { dryRun: true }).then(
      () => false,
      (error: Error) => /failed calling webhook/.test(error.message),
    );
  await eventually(isBlocked, "negative control: the webhook that is down blocks a storage change");

  const { code, stdout, stderr } = await cluster.ksvm(["unfreeze", kind.name]);
  t.equal(code, 0, stderr);
  t.match(stderr, /is frozen by host_dead/);
  t.match(stdout, /^its run is over: ".*" is no longer frozen\n$/, "without a confirmation");
  await assertUnfrozen(t, cluster, kind);
  t.notOk(Object.hasOwn((await cluster.crd(kind)).metadata.annotations ?? {}, OWNER));
  await eventually(() => isFlipAccepted(kind), "the storage version can be changed");

  const again = await unfreeze(kind.name);
  t.same(again, { code: 0, stdout: `"${kind.name}" is not frozen: nothing to do\n`, stderr: "" });
});

await t.test("unfreeze lifts a freeze of another owner, whatever its value", async (t) => {
  const kind = new TestKind("foreign");
  await cluster.createCrd(kind, { storage: "v1" });
  await api.patch(CRDS, kind, {
    type: MERGE_PATCH,
    body: { metadata: { annotations: { [MIGRATING]: kind.name, keep: "me" } } },
  });
  const { code, stderr } = await unfreeze(kind.name);
  t.equal(code, 0, stderr);
  t.match(stderr, /is frozen by something other than ksvm/);
  t.same((await cluster.crd(kind)).metadata.annotations, { keep: "me" });
});

await t.test("unfreeze says in one line what it cannot find", async (t) => {
  const problems = [
    ["nothing.example.com", 'Cannot find "nothing.example.com": '],
    ["secrets", 'Cannot unfreeze "secrets": no CustomResourceDefinition'],
  ];
  for (const [name = "", problem] of problems) {
    const { code, stdout, stderr } = await unfreeze(name);
    t.equal(code, 1);
    t.equal(stdout, "");
    t.match(stderr, new RegExp(`^error: ${problem}.* \\[ResourceNotFound\\]\n$`));
  }
  t.match(await unfreeze(), { code: 2, stderr: /missing required argument 'name'/ });
});
