// Rights that a user lacks: before a run, all of them are named; in the middle of one, refused writes are tried again for a while.
import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { storedVersionsOf } from "../crd.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { CLUSTER_ROLES, CRDS, MERGE_PATCH } from "../api-client.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";
import { grantUser } from "./grant-user.ts";
import { parallel } from "./parallel.ts";
import { SLOW_FLAGS, SLOW_RUN_OBJECTS, untilRewriting } from "./slow-run.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;

/** What a user lacks who sees the CRD, where the webhook is not installed; docs/user-guide.md has the same. */
function lackingFor({ name }: TestKind): readonly string[] {
  const crds = "customresourcedefinitions.apiextensions.k8s.io";
  const policies = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"].map(
    (resource) => `${resource}.admissionregistration.k8s.io`,
  );
  const leases = 'leases.coordination.k8s.io in namespace "kube-system"';
  return [
    `patch ${crds}`,
    `patch ${crds}/status`,
    ...policies.flatMap((resource) => ["get", "create", "patch", "delete"].map((verb) => `${verb} ${resource}`)),
    ...["get", "list", "create", "patch", "delete"].map((verb) => `${verb} ${leases}`),
    ...["list", "patch"].map((verb) => `${verb} ${name}`),
  ];
}

parallel("a user who may only see the CRD learns of every missing right at once", async (t) => {
  const kind = new TestKind("strange");
  await cluster.createStale(kind, 3);
  const before = await cluster.crd(kind);
  const rule = { apiGroups: [CRDS.group], resources: [CRDS.resource], verbs: ["get", "list", "watch"] };
  await grantUser(api, "seeing", [rule]);
  const run = await cluster.migrate([kind.name, "--kubeconfig", cluster.controlPlane.kubeconfigFor("seeing")]);
  t.equal(run.code, 1);
  t.match(run.stderr, `; nothing was changed; ksvm rbac ${kind.name} prints the roles that it needs [Forbidden]\n`);
  const lacking = (/this user may not ([^;]*);/.exec(run.stderr)?.[1] ?? "").split(", ");
  t.same(lacking.toSorted(), lackingFor(kind).toSorted());
  t.equal((await cluster.crd(kind)).metadata.resourceVersion, before.metadata.resourceVersion);
  const narrow = await cluster.migrate([kind.name, "--kubeconfig", cluster.controlPlane.kubeconfigFor("narrow")]);
  t.match(narrow, { code: 1, stderr: /cannot get resource "customresourcedefinitions".*\[Forbidden\]\n$/ });
});

/** A slow run of a user whose right to patch the objects is taken away once the run rewrites them. */
async function startRefusedRun(kind: TestKind, user: string) {
  const groups = ["admissionregistration", "apiextensions", "apiregistration", "coordination", "discovery"];
  const objects = { apiGroups: [GROUP], resources: [kind.plural] };
  const listing = { ...objects, verbs: ["list"] };
  const rest = { apiGroups: groups.map((group) => `${group}.k8s.io`), resources: ["*"], verbs: ["*"] };
  await grantUser(api, user, [rest, listing, { ...objects, verbs: ["patch"] }]);
  await cluster.createStale(kind, SLOW_RUN_OBJECTS);
  const kubeconfig = cluster.controlPlane.kubeconfigFor(user);
  const ended = cluster.migrate([kind.name, ...SLOW_FLAGS, "--kubeconfig", kubeconfig]);
  await untilRewriting(cluster, kind, { ended });
  const setRules = (rules: readonly object[]) =>
    api.patch(CLUSTER_ROLES, { name: user }, { type: MERGE_PATCH, body: { rules } });
  await setRules([rest, listing]);
  const own = cluster.clientFor(user);
  const isRefused = (): Promise<boolean> =>
    own
      .patch(
        kind.resource("v1"),
        { name: "w0", namespace: "default" },
        { type: MERGE_PATCH, body: {} },
        { dryRun: true },
      )
      .then(
        () => false,
        (error: unknown) => error instanceof ApiError && error.status === 403,
      );
  await eventually(isRefused, "the authorizer refuses writes");
  return { ended, grantAgain: () => setRules([rest, listing, { ...objects, verbs: ["patch"] }]) };
}

parallel("writes that the authorizer refuses for a moment, as after a restart, are tried again", async (t) => {
  const kind = new TestKind("moment");
  const { ended, grantAgain } = await startRefusedRun(kind, "reader");
  await delay(500);
  const stored = await cluster.storedAs(kind);
  t.ok((stored["v1alpha1"] ?? 0) > 8, "more objects are left than can be under way");
  await delay(3_000);
  t.same(await cluster.storedAs(kind), stored, "nothing is written in the meantime");
  await grantAgain();
  const { code, stderr } = await ended;
  t.equal(code, 0, stderr);
  t.same(await cluster.storedAs(kind), { v1: SLOW_RUN_OBJECTS });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
});

parallel("writes that the authorizer refuses from now on are waited for once, and not object by object", async (t) => {
  const kind = new TestKind("always");
  const { ended } = await startRefusedRun(kind, "helper");
  const startedAt = performance.now();
  const { code, stderr } = await ended;
  t.equal(code, 1, stderr);
  t.match(stderr, /User "helper" cannot patch resource .*\[Forbidden\]/);
  // Dozens of objects are left: one after the other they would take many minutes.
  t.ok(performance.now() - startedAt < 90_000, `it took ${Math.round(performance.now() - startedAt)} ms`);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  await assertUnfrozen(t, cluster, kind);
});
