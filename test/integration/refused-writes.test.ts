import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { CLUSTER_ROLES, MERGE_PATCH } from "../../src/kube/resources.ts";
import { Cluster, eventually } from "./cluster.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";
import { parallel } from "./parallel.ts";
import { SLOW_FLAGS, SLOW_RUN_OBJECTS, untilRewriting } from "./slow-run.ts";

const USERS = ["refused-once", "refused-always"] as const;
const cluster = await Cluster.start(t, { users: USERS.map((name) => ({ name })) });
const { api } = cluster;
const BINDINGS = { ...CLUSTER_ROLES, resource: "clusterrolebindings" };

type Rule = {
  readonly apiGroups: readonly string[];
  readonly resources: readonly string[];
  readonly verbs: readonly string[];
};

/** Lets a user do something, by a role and a binding of this name. */
async function grant(user: string, name: string, rules: readonly Rule[]): Promise<void> {
  const apiVersion = "rbac.authorization.k8s.io/v1";
  await api.create(CLUSTER_ROLES, { apiVersion, kind: "ClusterRole", metadata: { name }, rules });
  await bind(user, name);
}

function bind(user: string, name: string): Promise<unknown> {
  const apiGroup = "rbac.authorization.k8s.io";
  return api.create(BINDINGS, {
    apiVersion: `${apiGroup}/v1`,
    kind: "ClusterRoleBinding",
    metadata: { name },
    subjects: [{ kind: "User", name: user, apiGroup }],
    roleRef: { kind: "ClusterRole", name, apiGroup },
  });
}

/** Starts a slow run of a user whose right to patch the objects is taken away once the run rewrites them. */
async function startRefusedRun(kind: TestKind, user: (typeof USERS)[number]) {
  const all = ["*"];
  const groups = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
  ];
  await grant(user, `${user}-rest`, [
    { apiGroups: groups, resources: all, verbs: all },
    { apiGroups: [GROUP], resources: [kind.plural], verbs: ["list"] },
  ]);
  await grant(user, `${user}-patch`, [{ apiGroups: [GROUP], resources: [kind.plural], verbs: ["patch"] }]);
  await cluster.createStale(kind, SLOW_RUN_OBJECTS);
  const kubeconfig = cluster.controlPlane.kubeconfigFor(user);
  const ended = cluster.migrate([kind.name, ...SLOW_FLAGS, "--kubeconfig", kubeconfig]);
  await untilRewriting(cluster, kind, { ended });
  await api.delete(BINDINGS, { name: `${user}-patch` });
  const own = cluster.clientFor(user);
  const touch = { type: MERGE_PATCH, body: {} };
  const isRefused = (): Promise<boolean> =>
    own.patch(kind.resource("v1"), { name: "w0", namespace: "default" }, touch, { dryRun: true }).then(
      () => false,
      (error: unknown) => error instanceof ApiError && error.status === 403,
    );
  await eventually(isRefused, "the authorizer refuses writes");
  await own.transport.close();
  return { ended };
}

parallel("writes that the authorizer refuses for a moment, as after a restart, are tried again", async (t) => {
  const kind = new TestKind("moment");
  const { ended } = await startRefusedRun(kind, "refused-once");
  await delay(500);
  const stored = await cluster.storedAs(kind);
  t.ok((stored["v1alpha1"] ?? 0) > 8, "more objects are left than can be under way");
  await delay(3_000);
  t.same(await cluster.storedAs(kind), stored, "nothing is written in the meantime");
  await bind("refused-once", "refused-once-patch");
  const { code, stderr } = await ended;
  t.equal(code, 0, stderr);
  t.same(await cluster.storedAs(kind), { v1: SLOW_RUN_OBJECTS });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
});
