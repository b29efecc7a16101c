import t from "tap";
import { systemClock } from "../../src/clock.ts";
import { listedVersions, resourcesOf } from "../../src/kube/discovery.ts";
import { Cluster, eventually } from "./cluster.ts";
import { NAMESPACE, startAsServiceAccount } from "./installation.ts";
import { kubectlOf } from "./kubectl.ts";
import { ensureBinaries } from "../control-plane/binaries.ts";
import { freePort, ONLY_CUSTOM, spawnController } from "./replica.ts";

/** Long enough for a controller to write again what was deleted. */
const AFTERWARDS_MS = 15_000;

await ensureBinaries(["kube-controller-manager"]);
const cluster = await Cluster.start(t);
const { api } = cluster;
const kubectl = await kubectlOf(cluster);
await cluster.controlPlane.startControllerManager({
  controllers: ["namespace-controller", "garbage-collector-controller", "serviceaccount-controller"],
});

/** Every object of the cluster by what names it, but Events, which expire. */
async function everything(): Promise<readonly string[]> {
  const found: string[] = [];
  for (const { group, version } of await listedVersions(api.transport)) {
    for (const { name: resource, verbs } of await resourcesOf(api.transport, { group, version })) {
      if (!verbs.includes("list") || resource === "events") continue;
      const { items } = await api.listMetadata({ group, version, resource }, { limit: 5_000 });
      found.push(
        ...items.map(({ metadata }) => [group, version, resource, metadata.namespace, metadata.name].join("/")),
      );
    }
  }
  return found.toSorted();
}

await t.test("kubectl delete -k leaves nothing behind, also while a controller runs", async (t) => {
  // What the API server itself creates in its first seconds.
  let before = await everything();
  await eventually(async () => {
    const last = before;
    await systemClock.sleep(2_000);
    before = await everything();
    return last.join() === before.join();
  }, "the cluster stands still");
  t.match(await kubectl(["apply", "--server-side", "-k", "deploy/base"]), { code: 0 });
  const kubeconfig = await startAsServiceAccount(cluster, "storage-migrator");
  const replica = await spawnController(
    t,
    { kubeconfig },
    { webhookPort: await freePort(), byService: true, flags: ONLY_CUSTOM },
  );
  const isServing = async (): Promise<boolean> => (await replica.health("/readyz")).status === 200;
  await eventually(isServing, `a replica is ready:\n${replica.log()}`);
  const during = await everything();
  t.ok(during.length > before.length + 30, "negative control: the installation is seen");
  t.ok(during.some((name) => name.includes("leases") && name.includes(NAMESPACE)));

  const deleted = await kubectl(["delete", "-k", "deploy/base", "--timeout=100s"]);
  t.equal(deleted.code, 0, deleted.stderr);
  await systemClock.sleep(AFTERWARDS_MS);
  t.equal((await replica.health("/livez")).status, 200, "the controller still runs");
  await eventually(async () => {
    const after = await everything();
    return after.filter((name) => !before.includes(name)).length === 0;
  }, "nothing is left").catch(async (error: unknown) => {
    t.comment((await everything()).filter((name) => !before.includes(name)));
    throw error;
  });
  const after = await everything();
  t.same(
    before.filter((name) => !after.includes(name)),
    [],
    "and nothing else was deleted",
  );
});
