import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t, { type Test } from "tap";
import { parseAllDocuments } from "yaml";
import { WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import type { NewObject } from "../../src/kube/client.ts";
import { chartFiles } from "../../tools/chart.ts";
import { Cluster } from "../integration/cluster.ts";
import { NAMESPACE, overlayOf } from "../integration/installation.ts";
import { render } from "../integration/kubectl.ts";
import { RunningProgram } from "../processes/program.ts";
import { ensureHelm, HELM_VERSIONS } from "./helm.ts";

const CHART = join(import.meta.dirname, "../../deploy/chart");
/** What the chart adds for Helm alone, and the Namespace, which Helm creates. */
const OF_HELM = /^helm\.sh\//;

const helms = new Map<string, string>();
for (const version of HELM_VERSIONS) helms.set(version, await ensureHelm(version));
const newest = helms.get(HELM_VERSIONS[0]) ?? "";

async function helm(program: string, args: readonly string[], kubeconfig?: string): Promise<string> {
  const env = { HOME: tmpdir(), ...(kubeconfig === undefined ? {} : { KUBECONFIG: kubeconfig }) };
  const { code, stdout, stderr } = await new RunningProgram(program, args, { env, timeoutMs: 180_000 }).ended;
  if (code !== 0) throw new Error(`helm ${args.join(" ")}: ${stderr}`);
  return stdout;
}

function idOf({ apiVersion, kind, metadata }: NewObject): string {
  return [apiVersion, kind, metadata.namespace, metadata.name].join("/");
}

function plain(object: NewObject): NewObject {
  const { annotations = {}, ...metadata } = object.metadata as { annotations?: Record<string, string> };
  const kept = Object.entries(annotations).filter(([name]) => !OF_HELM.test(name));
  return {
    ...object,
    metadata: { ...metadata, ...(kept.length === 0 ? {} : { annotations: Object.fromEntries(kept) }) },
  };
}

function byId(objects: readonly NewObject[]): Readonly<Record<string, NewObject>> {
  const named = objects.filter(({ kind }) => kind !== "Namespace").map((one) => [idOf(one), plain(one)] as const);
  return Object.fromEntries(named.toSorted(([a], [b]) => a.localeCompare(b)));
}

async function template(program: string, values: readonly string[]): Promise<Readonly<Record<string, NewObject>>> {
  const set = values.flatMap((value) => (value.endsWith(".yaml") ? ["-f", value] : ["--set", value]));
  const text = await helm(program, ["template", "ksvm", CHART, "--namespace", NAMESPACE, "--skip-tests", ...set]);
  return byId(parseAllDocuments(text).flatMap((document) => (document.toJS() as NewObject | null) ?? []));
}

await t.test("the files of the chart are those of deploy/: make chart", async (t) => {
  for (const [name, text] of await chartFiles()) {
    t.equal(readFileSync(join(CHART, "files", name), "utf8"), text, name);
  }
});

const NO_MONITORING = { monitoring: ["serviceMonitor", "prometheusRule", "dashboard"] } as const;
const MONITORING = NO_MONITORING.monitoring.map((name) => `monitoring.${name}=true`);

const cases: readonly (readonly [values: readonly string[], components: readonly string[]])[] = [
  [[], []],
  [["certificates=files"], ["certificate-files"]],
  [["certificates=secret"], ["certificate-secret"]],
  [["certificates=cert-manager"], ["cert-manager"]],
  [["separateWebhook=true"], ["separate-webhook"]],
  [["controlPlaneNodes=true"], ["control-plane-nodes"]],
  [["denyEarlyMigrations=true"], ["deny-early-migrations"]],
  [["denyUnprovenPrunes=true"], ["deny-unproven-prunes"]],
  [["serveInTreeMigrations=true"], ["serve-in-tree-migrations"]],
  [MONITORING, ["monitoring"]],
  [
    [
      "separateWebhook=true",
      "certificates=cert-manager",
      "controlPlaneNodes=true",
      "denyEarlyMigrations=true",
      "denyUnprovenPrunes=true",
      "serveInTreeMigrations=true",
      ...MONITORING,
    ],
    [
      "separate-webhook",
      "cert-manager",
      "control-plane-nodes",
      "deny-early-migrations",
      "deny-unproven-prunes",
      "serve-in-tree-migrations",
      "monitoring",
    ],
  ],
];

for (const [version, program] of helms) {
  await t.test(`helm ${version} lints the chart, and refuses values that it does not know`, async (t) => {
    t.match(await helm(program, ["lint", CHART, "--strict", "--namespace", NAMESPACE]), /0 chart\(s\) failed/);
    for (const [wrong, expected] of [
      ["replicas=0", /replicas/],
      ["certificates=none", /certificates/],
      ["replica=3", /replica/],
      ["only.resources={widgets.example.com}", /ksvm rbac NAME… -o values prints both/],
    ] as const) {
      await t.rejects(template(program, [wrong]), expected, wrong);
    }
    const elsewhere = helm(program, ["template", "ksvm", CHART, "--namespace", "default"]);
    await t.rejects(elsewhere, /pass --namespace kube-storage-migration/);
  });

  await t.test(`helm ${version} renders what Kustomize does`, async (t) => {
    for (const [values, components] of cases) {
      const folder = overlayOf(t, ["deploy/base", ...components.map((name) => `deploy/components/${name}`)]);
      t.same(await template(program, values), byId(await render(folder)), values.join(" ") || "by default");
    }
  });

  await t.test(`helm ${version} takes the image, the replicas and the limits of the values`, async (t) => {
    const digest = `sha256:${"0".repeat(64)}`;
    const objects = await template(program, [
      "image.repository=registry.example.com/ksvm",
      `image.digest=${digest}`,
      "replicas=3",
      "extraArgs={--max-in-flight=8}",
      "networkPolicy.enabled=false",
      "crds.install=false",
    ]);
    const text = JSON.stringify(objects);
    t.notMatch(text, /"image":"ksvm/);
    t.match(text, `registry.example.com/ksvm@${digest}`);
    t.match(text, '"replicas":3');
    t.match(text, "--max-in-flight=8");
    t.notMatch(Object.keys(objects).join(" "), /NetworkPolicy|CustomResourceDefinition/);
  });
}

const cluster = await Cluster.start(t);

await t.test("the output of ksvm rbac -o values limits the chart as the component does", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "ksvm-only-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const [names, values] = [["widgets.example.com", "configmaps"], join(folder, "only.yaml")];
  writeFileSync(values, (await cluster.ksvm(["rbac", ...names, "-o", "values"])).stdout);
  const overlay = overlayOf(t, ["deploy/base", "deploy/components/only-these-resources"]);
  t.same(await template(newest, [values]), byId(await render(overlay)));
});

/** Every object of every resource that the API server lists, without what its own controllers keep. */
async function everything(t: Test): Promise<readonly string[]> {
  const names: string[] = [];
  const { api } = cluster;
  const groups = (
    await api.transport.request<{ groups: readonly { preferredVersion: { groupVersion: string } }[] }>({
      method: "GET",
      path: "/apis",
    })
  ).body.groups;
  for (const path of ["/api/v1", ...groups.map(({ preferredVersion }) => `/apis/${preferredVersion.groupVersion}`)]) {
    const { body } = await api.transport.request<{ resources: readonly { name: string; verbs: readonly string[] }[] }>({
      method: "GET",
      path,
    });
    for (const { name, verbs } of body.resources) {
      if (!verbs.includes("list") || ["events", "leases"].includes(name)) continue;
      const { body: list } = await api.transport.request<{ items: readonly NewObject[] }>({
        method: "GET",
        path: `${path}/${name}`,
      });
      names.push(
        ...list.items.map(({ metadata }) => `${path}/${name}/${metadata.namespace ?? ""}/${metadata.name ?? ""}`),
      );
    }
  }
  t.ok(names.length > 50);
  return names.toSorted();
}

for (const [version, program] of helms) {
  await t.test(`helm ${version} installs, upgrades, rolls back and uninstalls, from nothing to nothing`, async (t) => {
    // No kubelet runs the hook, a Job.
    const common = ["--namespace", NAMESPACE, "--no-hooks"];
    const run = (...args: readonly string[]) => helm(program, [...args, ...common], cluster.kubeconfig);
    const before = await everything(t);
    await run("install", "ksvm", CHART, "--create-namespace", "--set", "crds.keep=false");
    const { body } = await cluster.api.transport.request<{ webhooks: readonly { clientConfig: object }[] }>({
      method: "GET",
      path: "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/crd.kube-storage-version-migrator.io",
    });
    // As ksvm keeps it.
    const caBundle = Buffer.from(cluster.controlPlane.ca).toString("base64");
    await cluster.api.patch(
      WEBHOOK_CONFIGURATIONS,
      { name: "crd.kube-storage-version-migrator.io" },
      {
        type: "application/json-patch+json",
        body: body.webhooks.map((_, index) => ({
          op: "add",
          path: `/webhooks/${index}/clientConfig/caBundle`,
          value: caBundle,
        })),
      },
      { fieldManager: "ksvm-certificates" },
    );
    await run("upgrade", "ksvm", CHART, "--set", "crds.keep=false,replicas=3,separateWebhook=true");
    const args = { method: "GET", path: `/apis/apps/v1/namespaces/${NAMESPACE}/deployments/ksvm-controller` } as const;
    const replicas = async () =>
      (await cluster.api.transport.request<{ spec: { replicas: number } }>(args)).body.spec.replicas;
    t.equal(await replicas(), 3);
    const kept = await cluster.api.get(WEBHOOK_CONFIGURATIONS, { name: "crd.kube-storage-version-migrator.io" });
    t.match(JSON.stringify(kept), caBundle, "an upgrade leaves the caBundle as it is");
    await run("rollback", "ksvm", "1");
    t.equal(await replicas(), 2);
    await run("uninstall", "ksvm");
    await cluster.api.transport.request({ method: "DELETE", path: `/api/v1/namespaces/${NAMESPACE}` });
    t.same(
      (await everything(t)).filter((name) => !name.includes(NAMESPACE)),
      before.filter((name) => !name.includes(NAMESPACE)),
    );
  });
}
