import t, { type Test } from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { Cluster } from "./cluster.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { TestKind } from "./crd-fixture.ts";
import { createInV1, dropOldVersions, listProblem, loseObjects, pruneByHand } from "./lost-objects.ts";
import { parallel } from "./parallel.ts";
import { accountFor } from "./rbac-account.ts";
import { conversionBy, serveConversion } from "./serve-webhook.ts";
import { INTERRUPTED_FLAGS, SLOW_RUN_OBJECTS, untilRewriting } from "./slow-run.ts";

const cluster = await Cluster.start(t);
const FLAGS = ["--repair", "--yes", "--settle", "1s", "--convergence-timeout", "20s"] as const;

function repair(kind: TestKind, ...args: readonly string[]) {
  return cluster.ksvm(["doctor", kind.name, ...FLAGS, ...args]);
}

async function assertRepaired(t: Test, kind: TestKind, count: number): Promise<void> {
  t.same(await cluster.storedAs(kind), { v1: count });
  const crd = await cluster.crd(kind);
  t.same(
    crd.spec.versions.map(({ name }) => name),
    ["v1"],
  );
  t.same(storedVersionsOf(crd), ["v1"]);
  t.equal(await listProblem(cluster, kind), "", "every object can be read");
  await assertUnfrozen(t, cluster, kind);
  t.match(await cluster.ksvm(["doctor", kind.name]), { code: 0 });
}

parallel("doctor --repair is killed in the middle, and a second one completes it", async (t) => {
  const kind = new TestKind("dying");
  await loseObjects(cluster, kind, SLOW_RUN_OBJECTS);
  const run = cluster.spawnKsvm(t, ["doctor", kind.name, ...FLAGS, ...INTERRUPTED_FLAGS]);
  await untilRewriting(cluster, kind, run);
  run.signal("SIGKILL");
  await run.ended;
  const stored = await cluster.storedAs(kind);
  t.ok((stored["v1alpha1"] ?? 0) > 0, "objects are left in etcd in the version that was lost");
  t.same(new Set(storedVersionsOf(await cluster.crd(kind))), new Set(["v1alpha1", "v1"]), "and it is listed");
  t.equal(await listProblem(cluster, kind), "", "no object is lost in between");
  t.match(await cluster.ksvm(["doctor", kind.name]), { code: 5, stdout: /unfinished-repair/ });

  const again = await repair(kind);
  t.equal(again.code, 0, again.stderr);
  await assertRepaired(t, kind, SLOW_RUN_OBJECTS + 1);
});

parallel("doctor --repair brings back objects of a CRD with a conversion webhook, once that is up", async (t) => {
  const webhook = await serveConversion(t);
  const kind = new TestKind("converted");
  await cluster.createStale(kind, 3, { conversion: conversionBy(webhook) });
  await createInV1(cluster, kind);
  await pruneByHand(cluster, kind);
  await dropOldVersions(cluster, kind);
  webhook.setDown(true);
  const down = await repair(kind, "--webhook-wait", "1s");
  t.not(down.code, 0, "negative control: nothing can be converted while it is down");
  t.equal((await cluster.storedAs(kind))["v1alpha1"], 3);
  t.ok(storedVersionsOf(await cluster.crd(kind)).includes("v1alpha1"), "nothing was pruned");
  webhook.setDown(false);
  const calls = webhook.calls();
  const { code, stderr } = await repair(kind);
  t.equal(code, 0, stderr);
  t.ok(webhook.calls() > calls, "the webhook converted");
  await assertRepaired(t, kind, 4);
});

parallel("ksvm rbac prints what doctor NAME --repair takes, and no more", async (t) => {
  const [kind, other] = [new TestKind("allowed"), new TestKind("denied")];
  await loseObjects(cluster, kind, 2);
  await loseObjects(cluster, other, 2);
  const kubeconfig = await accountFor(cluster, "surgeon", [kind.name]);
  const { code, stderr } = await repair(kind, "--kubeconfig", kubeconfig);
  t.equal(code, 0, stderr);
  await assertRepaired(t, kind, 3);
  t.not((await repair(other, "--kubeconfig", kubeconfig)).code, 0, "negative control: another CRD");
  t.same(await cluster.storedAs(other), { v1: 1, v1alpha1: 2 });
});
