import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t from "tap";
import { parseAllDocuments } from "yaml";
import type { NewObject } from "../api-client.ts";
import { readVersions } from "../control-plane/versions.ts";
import { chartFiles } from "../../tools/chart.ts";
import { Cluster } from "../integration/cluster.ts";
import { NAMESPACE, overlayOf } from "../integration/installation.ts";
import { render } from "../integration/kubectl.ts";
import { ensureHelm, HELM_VERSIONS, runHelm as helm } from "./helm.ts";

const CHART = join(import.meta.dirname, "../../deploy/chart");
/** What the chart adds for Helm alone, and the Namespace, which Helm creates. */
const OF_HELM = /^helm\.sh\//;

/** Helm that was built from its module takes some old version of Kubernetes where there is no cluster. */
const TEMPLATE = ["template", "ksvm", CHART, "--kube-version", readVersions().kubernetes];

const helms = new Map<string, string>();
for (const version of HELM_VERSIONS) helms.set(version, await ensureHelm(version));
const newest = helms.get(HELM_VERSIONS[0]) ?? "";

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
  const text = await helm(program, [...TEMPLATE, "--namespace", NAMESPACE, ...set]);
  return byId(parseAllDocuments(text).flatMap((document) => (document.toJS() as NewObject | null) ?? []));
}

/** An overlay chooses the image; deploy/base has its tag for its own objects alone. */
async function renderWithImage(folder: string): Promise<readonly NewObject[]> {
  const text = JSON.stringify(await render(folder));
  return JSON.parse(text.replaceAll('"image":"ksvm"', '"image":"ksvm:0.1.0"')) as NewObject[];
}

const cluster = await Cluster.start(t);

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
  [["controlPlaneNodes=true"], ["control-plane-nodes"]],
  [["denyUnprovenPrunes=true"], ["deny-unproven-prunes"]],
  [["noKubeSystem=true"], ["no-kube-system"]],
  [MONITORING, ["monitoring"]],
  [
    [
      "certificates=cert-manager",
      "controlPlaneNodes=true",
      "denyUnprovenPrunes=true",
      "noKubeSystem=true",
      ...MONITORING,
    ],
    ["cert-manager", "control-plane-nodes", "deny-unproven-prunes", "no-kube-system", "monitoring"],
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
      ["extraArgs={--health-port=1}", /cannot pass --health-port=1: the chart sets it/],
      ["image.repository=ksvm:1.0", /repository/],
      ["monitoring=null", /monitoring/],
      ["replicas=11", /replicas/],
    ] as const) {
      await t.rejects(template(program, [wrong]), expected, wrong);
    }
    const elsewhere = helm(program, [...TEMPLATE, "--namespace", "default"]);
    await t.rejects(elsewhere, /pass --namespace kube-storage-migration/);
  });

  await t.test(`helm ${version} renders what Kustomize does`, async (t) => {
    for (const [values, components] of cases) {
      const folder = overlayOf(t, ["deploy/base", ...components.map((name) => `deploy/components/${name}`)]);
      t.same(await template(program, values), byId(await renderWithImage(folder)), values.join(" ") || "by default");
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

const FOR_CERTIFICATES = ["--webhook-url=https://a.example/validate", "--extra-names=b.example"] as const;
const FOR_ALL = ["--log-format=json", "--v=4"] as const;

for (const [version, program] of helms) {
  await t.test(`helm ${version} applies the values to every pod`, async (t) => {
    const values = [
      "replicas=1",
      `extraArgs={--max-in-flight=8,--settle=150s,${FOR_CERTIFICATES.join(",")},${FOR_ALL.join(",")}}`,
      "nodeSelector.zone=a",
    ];
    const pull = ["image.pullSecrets={registry}", "image.pullPolicy=Always", "resources.limits.memory=1Gi"];
    const labels = [
      "monitoring.serviceMonitor=true",
      "monitoring.prometheusRule=true",
      "monitoring.labels.release=metrics",
    ];
    const ports = ["networkPolicy.apiServerPorts={16443}"];
    const set = [...values, ...pull, ...labels, ...ports].flatMap((value) => ["--set", value]);
    const text = await helm(program, [...TEMPLATE, "--namespace", NAMESPACE, ...set]);
    const objects = parseAllDocuments(text).flatMap((document) => (document.toJS() as NewObject | null) ?? []);
    const pods = objects.flatMap((object) => podSpecsIn(object));
    t.equal(pods.length, 2, "a Deployment and a CronJob");
    for (const pod of pods) {
      t.match(pod, {
        imagePullSecrets: [{ name: "registry" }],
        nodeSelector: { zone: "a" },
        containers: [{ imagePullPolicy: "Always" }],
      });
    }
    const argsOf = (name: string): readonly string[] => deploymentIn(objects, name).containers[0]?.args ?? [];
    for (const pod of pods) t.same(pod.containers[0]?.args?.slice(-2), FOR_ALL, "flags of every command");
    const ofCertificates = pods.flatMap(({ containers }) => containers).filter(({ args }) => args?.[0] === "certs");
    t.equal(ofCertificates.length, 1);
    for (const { args } of [...ofCertificates, { args: argsOf("ksvm-controller") }]) {
      t.same(
        FOR_CERTIFICATES.filter((arg) => !args?.includes(arg)),
        [],
        "which must agree on them",
      );
    }
    t.notMatch(JSON.stringify(ofCertificates), /--(settle|max-in-flight)/, "which they do not have");
    t.ok(argsOf("ksvm-controller").includes("--max-in-flight=8"));
    t.ok(argsOf("ksvm-controller").includes("--settle=150s"));
    t.match(deploymentIn(objects, "ksvm-controller").containers, [{ resources: { limits: { memory: "1Gi" } } }]);
    t.notMatch(text, "PodDisruptionBudget", "which would keep the one replica on its node");
    const egress = objects.find(({ kind, metadata }) => kind === "NetworkPolicy" && metadata.name === "ksvm");
    t.match(JSON.stringify(egress), '{"port":8443,"protocol":"TCP"},{"port":16443,"protocol":"TCP"}]');
    for (const kind of ["ServiceMonitor", "PrometheusRule"]) {
      const ofKind = objects.filter((object) => object.kind === kind);
      t.ok(ofKind.length > 0);
      for (const { metadata } of ofKind) t.match(metadata, { labels: { release: "metrics" } });
    }
  });
}

interface PodSpec {
  readonly containers: readonly { readonly args?: readonly string[] }[];
}

/** The pod that an object is, or makes. */
function podSpecsIn(object: unknown): readonly PodSpec[] {
  if (typeof object !== "object" || object === null) return [];
  const { containers, spec, template, jobTemplate } = object as Readonly<Record<string, unknown>>;
  return Array.isArray(containers) ? [object as PodSpec] : [spec, template, jobTemplate].flatMap(podSpecsIn);
}

function deploymentIn(objects: readonly NewObject[], name: string): PodSpec {
  const [pod] = objects
    .filter(({ kind, metadata }) => kind === "Deployment" && metadata.name === name)
    .flatMap(podSpecsIn);
  if (pod === undefined) throw new Error(`no Deployment ${name}`);
  return pod;
}

await t.test("the output of ksvm rbac -o values limits the chart as the component does", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "ksvm-only-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const [names, values] = [["widgets.example.com", "configmaps"], join(folder, "only.yaml")];
  writeFileSync(values, (await cluster.ksvm(["rbac", ...names, "-o", "values"])).stdout);
  const overlay = overlayOf(t, ["deploy/base", "deploy/components/only-these-resources"]);
  t.same(await template(newest, [values]), byId(await renderWithImage(overlay)));
});
