import { join } from "node:path";
import t from "tap";
import { JSON_PATCH, type NewObject, WEBHOOK_CONFIGURATIONS } from "../api-client.ts";
import { WEBHOOK_NAME } from "../../src/freeze/rule.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { NAMESPACE } from "../integration/installation.ts";
import { ensureHelm, HELM_VERSIONS, runHelm } from "./helm.ts";

const CHART = join(import.meta.dirname, "../../deploy/chart");

/** One way to install ksvm. The second version may run on nodes of the control plane and has three replicas. */
interface Installer {
  readonly install: () => Promise<unknown>;
  readonly upgrade: () => Promise<unknown>;
  readonly rollback: () => Promise<unknown>;
  readonly uninstall: () => Promise<unknown>;
}

async function byHelm(version: (typeof HELM_VERSIONS)[number], { kubeconfig }: Cluster): Promise<Installer> {
  const program = await ensureHelm(version);
  const run = (...args: readonly string[]) => runHelm(program, [...args, "--namespace", NAMESPACE], kubeconfig);
  return {
    install: () => run("install", "ksvm", CHART, "--create-namespace", "--set", "crds.keep=false"),
    upgrade: () => run("upgrade", "ksvm", CHART, "--set", "crds.keep=false,replicas=3,controlPlaneNodes=true"),
    rollback: () => run("rollback", "ksvm", "1"),
    uninstall: () => run("uninstall", "ksvm"),
  };
}

async function bodyOf<Body>({ api }: Cluster, path: string): Promise<Body> {
  return (await api.request<Body>({ method: "GET", path })).body;
}

interface Groups {
  readonly groups: readonly { readonly preferredVersion: { readonly groupVersion: string } }[];
}

async function groupsOf(cluster: Cluster): Promise<readonly string[]> {
  const { groups } = await bodyOf<Groups>(cluster, "/apis");
  return groups.map(({ preferredVersion }) => preferredVersion.groupVersion);
}

/** Every object of every resource that the API server lists, but what it writes all the time. */
async function everything(cluster: Cluster): Promise<readonly string[]> {
  const names: string[] = [];
  for (const path of ["/api/v1", ...(await groupsOf(cluster)).map((version) => `/apis/${version}`)]) {
    const { resources } = await bodyOf<{ resources: readonly { name: string; verbs: readonly string[] }[] }>(
      cluster,
      path,
    );
    for (const { name, verbs } of resources) {
      if (!verbs.includes("list") || ["events", "leases"].includes(name)) continue;
      const { items } = await bodyOf<{ items: readonly NewObject[] }>(cluster, `${path}/${name}`);
      names.push(...items.map(({ metadata }) => `${path}/${name}/${metadata.namespace ?? ""}/${metadata.name ?? ""}`));
    }
  }
  // The namespace and what is in it stay: no controller of Kubernetes runs that deletes them.
  return names.filter((name) => !name.includes(`/${NAMESPACE}`)).toSorted();
}

for (const version of HELM_VERSIONS) {
  await t.test(`helm ${version} installs, upgrades, rolls back and uninstalls, from nothing to nothing`, async (t) => {
    const cluster = await Cluster.start(t);
    const installer = await byHelm(version, cluster);
    await eventually(
      async () => (await everything(cluster)).includes("/api/v1/services/default/kubernetes"),
      "the API server has written its own objects",
    );
    const before = await everything(cluster);
    t.ok(before.length > 50);
    await installer.install();
    t.ok((await everything(cluster)).length > before.length + 15);
    const configuration = async () =>
      cluster.api.get<NewObject & { webhooks: readonly { clientConfig: { caBundle?: string } }[] }>(
        WEBHOOK_CONFIGURATIONS,
        { name: WEBHOOK_NAME },
      );
    // As ksvm keeps it.
    const caBundle = Buffer.from(cluster.controlPlane.ca).toString("base64");
    const body = (await configuration()).webhooks.map((_, index) => ({
      op: "add",
      path: `/webhooks/${index}/clientConfig/caBundle`,
      value: caBundle,
    }));
    await cluster.api.patch(
      WEBHOOK_CONFIGURATIONS,
      { name: WEBHOOK_NAME },
      { type: JSON_PATCH, body },
      { fieldManager: "ksvm" },
    );
    const path = `/apis/apps/v1/namespaces/${NAMESPACE}/deployments`;
    const deployed = async () => {
      const { items } = await bodyOf<{ items: readonly (NewObject & { spec: { replicas: number } })[] }>(cluster, path);
      return items.map(({ metadata, spec }) => `${metadata.name ?? ""} ${spec.replicas}`).toSorted();
    };
    t.same(await deployed(), ["ksvm-controller 2"]);
    await installer.upgrade();
    t.same(await deployed(), ["ksvm-controller 3"]);
    t.same(
      (await configuration()).webhooks[0]?.clientConfig.caBundle,
      caBundle,
      "an upgrade leaves the caBundle as it is",
    );
    await installer.rollback();
    t.same(await deployed(), ["ksvm-controller 2"]);
    t.same((await configuration()).webhooks[0]?.clientConfig.caBundle, caBundle, "and so does a rollback");
    await installer.uninstall();
    await eventually(
      async () => !(await groupsOf(cluster)).some((version) => version.startsWith("migration.k8s.io/")),
      "the API server no longer lists migration.k8s.io",
    );
    t.same(await everything(cluster), before);
  });
}
