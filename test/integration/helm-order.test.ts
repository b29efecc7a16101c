import t from "tap";
import { CONTROLLER_LEASE } from "../../src/api/migration.ts";
import { WEBHOOK_NAME } from "../../src/api/names.ts";
import { systemClock } from "../../src/clock.ts";
import type { NewObject } from "../../src/kube/client.ts";
import { LEASES, POLICIES, POLICY_BINDINGS, WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import { WARN_POLICY_NAME } from "../../src/webhook/warn-policy.ts";
import { Cluster } from "./cluster.ts";
import { NAMESPACE, resourceOf, startAsServiceAccount } from "./installation.ts";
import { kubectlOf, render } from "./kubectl.ts";
import { freePort, ONLY_CUSTOM, spawnController, untilReady } from "./replica.ts";

/**
 * The order in which Helm deletes what deploy/base has; what it does not know comes last, by name.
 *
 * https://github.com/helm/helm/blob/20a1ca2345a667ecb611aed87b5c515c334c3de8/pkg/release/v1/util/kind_sorter.go (UninstallOrder)
 */
const UNINSTALL_ORDER = [
  "ValidatingWebhookConfiguration",
  "Service",
  "CronJob",
  "Job",
  "Deployment",
  "RoleBinding",
  "Role",
  "ClusterRoleBinding",
  "ClusterRole",
  "ConfigMap",
  "Secret",
  "ServiceAccount",
  "PodDisruptionBudget",
  "NetworkPolicy",
];
/** What Helm leaves there (crds.keep), and what each round needs again. */
const KEPT_KINDS = new Set(["Namespace", "CustomResourceDefinition", "PriorityClass"]);
/** Longer than a replica leaves away what is gone. */
const AFTERWARDS_MS = 7_000;

const cluster = await Cluster.start(t);
const { api } = cluster;
const kubectl = await kubectlOf(cluster);
const documents = (await render("deploy/base")).filter(({ kind = "" }) => !KEPT_KINDS.has(kind));

function placeOf(kind: string): number {
  const place = UNINSTALL_ORDER.indexOf(kind);
  return place === -1 ? UNINSTALL_ORDER.length : place;
}

const kinds = [...new Set(documents.map(({ kind = "" }) => kind))].toSorted(
  (a, b) => placeOf(a) - placeOf(b) || (a < b ? -1 : 1),
);

async function deleteOne(document: NewObject): Promise<void> {
  const { name = "", namespace } = document.metadata;
  await api.delete(await resourceOf(api, document), { name, ...(namespace === undefined ? {} : { namespace }) });
}

for (const delayMs of [0, 5, 10, 30]) {
  await t.test(`nothing comes back after helm uninstall with ${delayMs} ms between two kinds`, async (t) => {
    t.match(await kubectl(["apply", "--server-side", "--force-conflicts", "-k", "deploy/base"]), { code: 0 });
    const kubeconfig = await startAsServiceAccount(cluster, "storage-migrator");
    const options = { webhookPort: await freePort(), byService: true, flags: ONLY_CUSTOM };
    const replica = await spawnController(t, { kubeconfig }, options);
    await untilReady(replica);
    for (const kind of kinds) {
      await systemClock.sleep(delayMs);
      await Promise.all(documents.filter((document) => document.kind === kind).map((one) => deleteOne(one)));
    }
    // Nobody has stopped the replica: a kubelet does that some time after the Deployment is gone.
    await systemClock.sleep(AFTERWARDS_MS);
    t.equal((await replica.health("/livez")).status, 200, "the replica still runs");
    for (const [resource, name] of [
      [WEBHOOK_CONFIGURATIONS, WEBHOOK_NAME],
      [POLICIES, WARN_POLICY_NAME],
      [POLICY_BINDINGS, WARN_POLICY_NAME],
    ] as const) {
      t.equal(await api.find(resource, { name }), undefined, `${resource.resource} ${name} is gone`);
    }
    t.notMatch(replica.log(), /"wasMissing":true/, "nothing was restored in between");
    replica.kill("SIGTERM");
    t.equal(await replica.ended, 0);
    // It could not give it up without its roles, and the next one would wait until it expires.
    await api.delete(LEASES, { namespace: NAMESPACE, name: CONTROLLER_LEASE });
  });
}
