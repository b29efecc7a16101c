// A busy cluster: whatever others do to the objects, a run ends, loses nothing, and names what it could not write.
import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { storedVersionsOf } from "../crd.ts";
import { MERGE_PATCH, isConflict } from "../api-client.ts";
import { messageOf } from "../../src/errors.ts";
import { listsAnswered, patchesAnswered } from "../control-plane/api-requests.ts";
import { isAtLeast } from "../control-plane/features.ts";
import { assertNoTraces, assertUnfrozen } from "../integration/assert-no-traces.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { type CrdShape, TestKind } from "../integration/crd-fixture.ts";
import { objectWebhook } from "../integration/object-webhook.ts";
import { alone, parallel } from "../integration/parallel.ts";
import { rejectUpdates } from "../integration/reject-updates.ts";
import { conversionBy, serveConversion } from "../integration/serve-webhook.ts";
import { SLOW_RUN_OBJECTS, startSlowRun } from "../integration/slow-run.ts";

const cluster = await Cluster.start(t, {
  compactionInterval: "2s",
  // From snapshots of its own an API server serves pages that etcd has forgotten, and no token would expire.
  featureGates: isAtLeast(34) ? { ListFromCacheSnapshot: false } : {},
  extraArgs: ["--max-requests-inflight=20", "--max-mutating-requests-inflight=20"],
  users: [{ name: "throttled" }],
});
const { api } = cluster;

/** Runs `work` again and again until the returned function is called, which resolves when it has stopped. */
function keep(work: (round: number) => Promise<unknown>): () => Promise<number> {
  const stop = new AbortController();
  const rounds = (async () => {
    let round = 0;
    while (!stop.signal.aborted) {
      await work(round++);
      await delay(20);
    }
    return round;
  })();
  return () => {
    stop.abort();
    return rounds;
  };
}

/** How often a run with these flags froze its CRD. */
async function freezesOf(args: readonly string[]) {
  const run = await cluster.migrate([...args, "-o", "json", "--max-idle", "10s"]);
  const events = run.stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as { readonly type?: string });
  return { ...run, freezes: events.filter(({ type }) => type === "frozen").length };
}

// It takes the longest.
parallel("a write that one webhook lets through as a dry-run and no other way ends the run", async (t) => {
  const kind = new TestKind("dryrunonly");
  await cluster.createStale(kind, 3);
  await objectWebhook(t, cluster, kind, {
    decide: async (_name, isDryRun) => {
      // Longer than the webhook's timeout.
      if (!isDryRun) await delay(1_500);
      return { allowed: true };
    },
    timeoutSeconds: 1,
  });
  const { code, stdout, freezes } = await freezesOf([kind.name]);
  t.equal(code, 1, stdout);
  t.match(stdout, /own\.example\.com/);
  t.ok(freezes >= 1 && freezes <= 3, `it froze the CRD ${freezes} times`);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  await assertUnfrozen(t, cluster, kind);
});

parallel(
  "F14: a controller that writes the status of every object all the time does not keep it from ending",
  async (t) => {
    const kind = new TestKind("churn");
    const run = await startSlowRun(cluster, kind, {
      shape: { statusSubresource: true },
    });
    const stop = keep((round) => {
      // Ten that are on one page or two, so that each is written between a list and the write that follows.
      const ref = { name: `w5${round % 10}`, namespace: "default" };
      const patch = { type: MERGE_PATCH, body: { status: { round } } };
      return api.patch(kind.resource("v1alpha1"), ref, patch, { subresource: "status" });
    });
    const { code, stderr } = await run.ended;
    t.ok((await stop()) > 10, "it wrote all the time");
    t.equal(code, 0, stderr);
    const conflicts = await patchesAnswered(cluster.controlPlane, kind.plural, 409);
    t.ok(conflicts > 0, `its writes met ${conflicts} conflicts`);
    t.same(await cluster.storedAs(kind), { v1: SLOW_RUN_OBJECTS });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  },
);

parallel("F15: objects that are deleted and created in mid-run are neither failures nor brought back", async (t) => {
  const kind = new TestKind("comings");
  const run = await startSlowRun(cluster, kind);
  const stop = keep(async (round) => {
    const name = `w${(round * 7) % SLOW_RUN_OBJECTS}`;
    await api.delete(kind.resource("v1"), { name, namespace: "default" });
    // Every other one comes back, with another uid.
    if (round % 2 === 0) {
      await api.create(kind.resource("v1"), kind.object(name, "v1")).catch((error: unknown) => {
        if (!isConflict(error)) throw error;
      });
    }
  });
  const { code, stderr } = await run.ended;
  await stop();
  t.equal(code, 0, stderr);
  const listed = (await api.listMetadata(kind.resource("v1"))).items.length;
  t.same(await cluster.storedAs(kind), { v1: listed });
  t.ok(listed < SLOW_RUN_OBJECTS, "what was deleted stays deleted");
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
});

parallel("F16: an object that is being deleted and cannot be written is named, and nothing is pruned", async (t) => {
  const kind = new TestKind("stuck");
  await cluster.createCrd(kind, { storage: "v1alpha1" });
  const ref = { name: "held", namespace: "default" };
  const object = kind.object("held", "v1alpha1");
  await api.create(kind.resource("v1alpha1"), { ...object, metadata: { ...ref, finalizers: ["example.com/hold"] } });
  await api.delete(kind.resource("v1alpha1"), ref);
  await cluster.setVersions(kind, { storage: "v1" });
  await rejectUpdates(cluster, kind, { expression: "false", message: "frozen solid" });
  await eventually(async () => (await cluster.migrate([kind.name, "--dry-run"])).code === 3, "the rule is in force");
  const run = await cluster.migrate([kind.name]);
  t.equal(run.code, 3);
  t.match(run.stderr, /default\/held: .*frozen solid/);
  t.same(await cluster.storedAs(kind), { v1alpha1: 1 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  await assertUnfrozen(t, cluster, kind);
});

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
  t.match(stdout, /cannot be converted/);
  t.ok(freezes <= 3, `it froze the CRD ${freezes} times`);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  await assertUnfrozen(t, cluster, kind);
});

/** An administrator whom the API server gives next to nothing at a time, and refuses what is beyond it. */
async function throttle(user: string): Promise<void> {
  const flowControl = { group: "flowcontrol.apiserver.k8s.io", version: "v1" };
  const apiVersion = "flowcontrol.apiserver.k8s.io/v1";
  const rbac = "rbac.authorization.k8s.io";
  await api.create(
    { group: rbac, version: "v1", resource: "clusterrolebindings" },
    {
      apiVersion: `${rbac}/v1`,
      kind: "ClusterRoleBinding",
      metadata: { name: user },
      subjects: [{ kind: "User", name: user, apiGroup: rbac }],
      roleRef: { kind: "ClusterRole", name: "cluster-admin", apiGroup: rbac },
    },
  );
  await api.create(
    { ...flowControl, resource: "prioritylevelconfigurations" },
    {
      apiVersion,
      kind: "PriorityLevelConfiguration",
      metadata: { name: user },
      // One at a time of the forty that there are, so that two at once, as a run begins, are one too many.
      spec: {
        type: "Limited",
        limited: { nominalConcurrencyShares: 5, borrowingLimitPercent: 0, limitResponse: { type: "Reject" } },
      },
    },
  );
  const all = { verbs: ["*"], apiGroups: ["*"], resources: ["*"], clusterScope: true, namespaces: ["*"] };
  const rule = { subjects: [{ kind: "User", user: { name: user } }], resourceRules: [all] };
  await api.create(
    { ...flowControl, resource: "flowschemas" },
    {
      apiVersion,
      kind: "FlowSchema",
      metadata: { name: user },
      spec: { priorityLevelConfiguration: { name: user }, matchingPrecedence: 100, rules: [rule] },
    },
  );
}

parallel("F17: an API server that answers 429 is given time", async (t) => {
  const kind = new TestKind("narrow");
  await cluster.createStale(kind, 60);
  await throttle("throttled");
  const kubeconfig = cluster.controlPlane.kubeconfigFor("throttled");
  const run = await cluster.migrate([kind.name, "--max-in-flight", "16", "--kubeconfig", kubeconfig]);
  t.equal(run.code, 0, run.stderr);
  t.ok((await patchesAnswered(cluster.controlPlane, kind.plural, 429)) > 0, "it did answer 429");
  t.same(await cluster.storedAs(kind), { v1: 60 });
  await assertNoTraces(t, cluster, kind);
});

alone("F18: continue tokens that expire (410) in mid-run cost nothing and lose nothing", async (t) => {
  const kind = new TestKind("expired");
  // So many are on four pages or more.
  const objects = 900;
  await cluster.createStale(kind, objects);
  const { stored } = cluster.controlPlane;
  // Beside the API server's own compactions: whatever the pace, some come between two pages.
  const stop = keep(async () => {
    await stored.compact(await stored.currentRevision()).catch(() => undefined);
    await delay(300);
  });
  const { code, stderr, stdout } = await cluster.migrate([kind.name, "--max-qps", "100"]);
  await stop();
  t.equal(code, 0, stderr);
  t.ok((await listsAnswered(cluster.controlPlane, kind.plural, 410)) > 0, "tokens expired");
  t.match(stdout, new RegExp(`: ${objects} rewritten`), "each object was written once");
  t.same(await cluster.storedAs(kind), { v1: objects });
});
