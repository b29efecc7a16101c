import { pino } from "pino";
import t from "tap";
import { systemClock } from "../../src/clock.ts";
import { CLUSTER_ROLES, CRDS, MERGE_PATCH, MIGRATIONS, STORAGE_STATES } from "../../src/kube/resources.ts";
import { MigrationFeed } from "../../src/migrations/migration-feed.ts";
import { readsOf } from "../control-plane/api-requests.ts";
import { Cluster, eventually } from "./cluster.ts";
import { createMigration } from "./controller-fixture.ts";
import { TestKind } from "./crd-fixture.ts";
import { grantUser } from "./grant-user.ts";
import { installCrds } from "./install-crds.ts";
import { startTrigger } from "./trigger-harness.ts";

const WATCH_FOR_MS = 30_000;

const cluster = await Cluster.start(t, {
  users: [{ name: "lister" }, { name: "limited" }, { name: "blind" }, { name: "stranger" }, { name: "beginner" }],
  featureGates: { StorageVersionAPI: true, APIServerIdentity: true },
  runtimeConfig: { "internal.apiserver.k8s.io/v1alpha1": true },
});
await installCrds(cluster);
const { api } = cluster;

await t.test(
  "without the right to watch migrations the feed looks now and then, and says once what is missing",
  async (t) => {
    const rule = { apiGroups: [MIGRATIONS.group], resources: [MIGRATIONS.resource], verbs: ["get", "list"] };
    await grantUser(api, "lister", [rule]);
    const client = cluster.clientFor("lister");
    const lines: string[] = [];
    const logger = pino({ level: "info" }, { write: (line: string) => void lines.push(line) });
    const feed = new MigrationFeed({ client, clock: systemClock, logger });
    const stop = new AbortController();
    const seen = new Set<string>();
    let lists = 0;
    await eventually(
      () =>
        client.listMetadata(MIGRATIONS, { limit: 1 }).then(
          () => true,
          () => false,
        ),
      "the role is in force",
    );
    const before = await readsOf(cluster.controlPlane, MIGRATIONS.resource);
    const following = feed.follow((change) => {
      lists += change.type === "listed" ? 1 : 0;
      if (change.type === "listed") change.migrations.forEach(({ metadata }) => seen.add(metadata.name));
      if (change.type === "changed") seen.add(change.migration.metadata.name);
    }, stop.signal);
    t.teardown(async () => {
      stop.abort(new Error("the test is over"));
      await following;
      await client.transport.close();
    });
    await eventually(async () => lists > 0, "the feed lists");
    const { metadata } = await createMigration(cluster, { group: "example.com", version: "v1", resource: "nothings" });
    await systemClock.sleep(WATCH_FOR_MS);
    t.ok(seen.has(metadata.name), "it is seen all the same");
    const reads = (await readsOf(cluster.controlPlane, MIGRATIONS.resource)) - before;
    t.ok(reads <= 16, `${reads} requests in ${WATCH_FOR_MS / 1_000} s, lists and watches`);
    const refusals = lines.filter((line) => line.includes("Not allowed to list and watch"));
    t.equal(refusals.length, 1);
    t.match(refusals[0], /cannot watch resource.*a minute late/);

    const patch = { type: MERGE_PATCH, body: { rules: [{ ...rule, verbs: ["get", "list", "watch"] }] } };
    await api.patch(CLUSTER_ROLES, { name: "lister" }, patch);
    await eventually(async () => lines.some((line) => line.includes("Can list and watch")), "it watches", 90_000);
    const { length } = lines;
    const other = await createMigration(cluster, { group: "example.com", version: "v1", resource: "nothings" });
    await eventually(async () => seen.has(other.metadata.name), "it is told by the watch", 5_000);
    t.equal(lines.length, length);
  },
);

await t.test("where StorageVersions may not be read the trigger works as where they are not served", async (t) => {
  const all = ["", "apiextensions.k8s.io", "migration.k8s.io", "coordination.k8s.io", "discovery.k8s.io"];
  await grantUser(api, "limited", [
    { apiGroups: all, resources: ["*"], verbs: ["*"] },
    { nonResourceURLs: ["*"], verbs: ["get"] },
  ]);
  const client = cluster.clientFor("limited");
  t.teardown(() => client.transport.close());
  await eventually(
    () =>
      client.listMetadata(CRDS, { limit: 1 }).then(
        () => true,
        () => false,
      ),
    "the role is in force",
  );
  const kind = new TestKind("limited");
  await cluster.createCrd(kind, { storage: "v1" });
  const { lines } = startTrigger(t, cluster, { user: "limited" });
  const hasState = async (): Promise<boolean> => (await api.find(STORAGE_STATES, { name: kind.name })) !== undefined;
  await eventually(hasState, "the CRD has a StorageState", 240_000);
  await eventually(
    async () => (await api.find(STORAGE_STATES, { name: "configmaps" })) !== undefined,
    "a built-in resource has one",
    120_000,
  );
  const refusals = lines.filter(
    ({ msg, resource }) => resource === "StorageVersions" && String(msg).startsWith("Not allowed to list and watch"),
  );
  t.equal(refusals.length, 1, "said once");
  // It is told of changes, too.
  const later = new TestKind("later");
  await cluster.createCrd(later, { storage: "v1" });
  const isSeen = async (): Promise<boolean> => (await api.find(STORAGE_STATES, { name: later.name })) !== undefined;
  await eventually(isSeen, "a CRD that comes later has one", 120_000);
});

await t.test("without the right to /metrics a run of a built-in resource says what it cannot prove", async (t) => {
  await grantUser(api, "blind", [{ apiGroups: ["*"], resources: ["*"], verbs: ["*"] }]);
  const client = cluster.clientFor("blind");
  t.teardown(() => client.transport.close());
  await eventually(
    () =>
      client.listMetadata(CRDS, { limit: 1 }).then(
        () => true,
        () => false,
      ),
    "the role is in force",
  );
  const run = await cluster.migrate(["serviceaccounts", "--kubeconfig", cluster.controlPlane.kubeconfigFor("blind")]);
  t.equal(run.code, 0, run.stderr);
  t.match(
    run.stdout,
    /warning: Cannot prove that no API server restarts during this run:.*may not get the nonResourceURL/,
  );
  const seeing = await cluster.migrate(["serviceaccounts"]);
  t.equal(seeing.code, 0, seeing.stderr);
  t.notMatch(seeing.stdout, "Cannot prove", "negative control: who may get /metrics is not warned");
});

/** All that a run on a CRD needs where the webhook is not installed; docs/user-guide.md has the same. */
function neededFor({ name }: TestKind): readonly string[] {
  const crds = "customresourcedefinitions.apiextensions.k8s.io";
  const policies = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"].map(
    (resource) => `${resource}.admissionregistration.k8s.io`,
  );
  const leases = 'leases.coordination.k8s.io in namespace "kube-system"';
  return [
    ...["get", "list", "watch", "patch"].map((verb) => `${verb} ${crds}`),
    `patch ${crds}/status`,
    ...policies.flatMap((resource) => ["get", "create", "patch", "delete"].map((verb) => `${verb} ${resource}`)),
    "get validatingwebhookconfigurations.admissionregistration.k8s.io",
    "list apiservices.apiregistration.k8s.io",
    ...["get", "list", "create", "patch", "delete"].map((verb) => `${verb} ${leases}`),
    ...["list", "patch"].map((verb) => `${verb} ${name}`),
  ];
}

await t.test("a user who may do nothing, or only see the CRD, learns of every missing right at once", async (t) => {
  const kind = new TestKind("strange");
  await cluster.createStale(kind, 3);
  const before = await cluster.crd(kind);
  const seeing = [{ apiGroups: [CRDS.group], resources: [CRDS.resource], verbs: ["get", "list", "watch"] }];
  await grantUser(api, "beginner", seeing);
  const lacking = async (user: string): Promise<readonly string[]> => {
    const run = await cluster.migrate([kind.name, "--kubeconfig", cluster.controlPlane.kubeconfigFor(user)]);
    t.equal(run.code, 1);
    t.equal(run.stderr.trim().split("\n").length, 1, "one line");
    t.match(run.stderr, `; nothing was changed; ksvm rbac ${kind.name} prints the roles that it needs [Forbidden]\n`);
    return (/this user may not ([^;]*);/.exec(run.stderr)?.[1] ?? "").split(", ");
  };
  const all = neededFor(kind);
  t.same((await lacking("stranger")).toSorted(), [...all].toSorted());
  const allButSeeing = all.filter((right) => !/^(get|list|watch) customresourcedefinitions/.test(right));
  t.same((await lacking("beginner")).toSorted(), allButSeeing.toSorted());
  t.equal((await cluster.crd(kind)).metadata.resourceVersion, before.metadata.resourceVersion);
});
