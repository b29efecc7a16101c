import { globSync, readFileSync } from "node:fs";
import { PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import tap from "tap";
import { parse, parseAllDocuments } from "yaml";

import { COMMANDS } from "../../src/cli/commands/all-commands.ts";
import { runProgram } from "../../src/cli/program.ts";
import { VALIDATE_PATH } from "../../src/webhook/app.ts";
import { rolesForRuns } from "../../src/cli/rbac-roles.ts";
import { warnPolicy } from "../../src/webhook/warn-policy.ts";
import { webhookConfigurationOf } from "../../src/webhook/webhook-configuration.ts";

const root = new URL("../../", import.meta.url);

function read(path: string): string {
  return readFileSync(new URL(path, root), "utf8");
}

const { version } = JSON.parse(read("package.json")) as { readonly version: string };

function documentsIn(path: string): readonly object[] {
  return parseAllDocuments(read(path)).map((document) => document.toJS() as object);
}

/** As it is sent: what is to be absent is. */
function sent<T>(object: T): T {
  return JSON.parse(JSON.stringify(object)) as T;
}

/** With the label of everything in deploy/. */
function named(object: { readonly metadata: { readonly labels: object } }): object {
  const labels = { ...object.metadata.labels, "app.kubernetes.io/name": "ksvm" };
  return sent({ ...object, metadata: { ...object.metadata, labels } });
}

// Templates of helm are no YAML yet; `make test-install` renders them.
const exclude = ["deploy/vendor/helm-chart/templates/**"];
const manifests = globSync("deploy/**/*.yaml", { cwd: fileURLToPath(root), exclude });

await tap.test(
  "deploy/base/webhook.yaml is the configuration that the program means, without a caBundle",
  async (t) => {
    const service = { namespace: "kube-storage-migration", name: "ksvm-webhook", path: VALIDATE_PATH, port: 443 };
    const expected = sent(webhookConfigurationOf({ clientConfig: { service, caBundle: "" } }));
    const { webhooks, ...rest } = parse(read("deploy/base/webhook.yaml")) as typeof expected;
    t.same(webhooks, [{ ...expected.webhooks[0], clientConfig: { service } }]);
    const { apiVersion, kind } = expected;
    t.same(rest, { apiVersion, kind, metadata: (named(expected) as typeof expected).metadata });
  },
);

await tap.test("deploy/base/unfreeze-warning.yaml is the policy that the program means", async (t) => {
  const { policy, binding } = warnPolicy();
  t.same(documentsIn("deploy/base/unfreeze-warning.yaml"), [policy, binding].map(named));
});

await tap.test('no role grants "get" on every resource, which includes pods/exec and nodes/proxy', async (t) => {
  interface Role {
    readonly kind?: string;
    readonly rules?: readonly { readonly resources?: readonly string[]; readonly verbs: readonly string[] }[];
  }
  const rules = manifests
    .flatMap((path) => parseAllDocuments(read(path)))
    .map((document) => document.toJS() as Role | null)
    .filter((object) => object?.kind === "ClusterRole" || object?.kind === "Role")
    .flatMap((role) => role?.rules ?? []);
  const broad = rules.filter(({ resources }) => resources?.includes("*"));
  t.same(
    broad.map(({ verbs }) => verbs),
    [["list", "patch"]],
  );
});

type Labels = Readonly<Record<string, string>>;

interface NetworkPolicy {
  readonly podSelector: {
    readonly matchLabels?: Labels;
    readonly matchExpressions?: readonly { readonly key: string; readonly values: readonly string[] }[];
  };
  readonly policyTypes: readonly string[];
  readonly ingress?: readonly { readonly ports: readonly { readonly port: unknown }[] }[];
}

interface PodTemplate {
  readonly metadata: { readonly labels: Labels };
  readonly spec: { readonly containers: readonly { readonly ports: readonly { readonly name: string }[] }[] };
}

function isSelected({ podSelector }: NetworkPolicy, labels: Labels): boolean {
  const { matchLabels = {}, matchExpressions = [] } = podSelector;
  return (
    Object.entries(matchLabels).every(([key, value]) => labels[key] === value) &&
    matchExpressions.every(({ key, values }) => values.includes(labels[key] ?? ""))
  );
}

function labelsOf(component: string): Labels {
  return { "app.kubernetes.io/name": "ksvm", "app.kubernetes.io/component": component };
}

/** The arguments of every container, wherever a manifest nests it. */
function* argumentsIn(value: unknown): Generator<readonly string[]> {
  if (Array.isArray(value)) {
    for (const item of value) yield* argumentsIn(item);
  } else if (typeof value === "object" && value !== null) {
    if ("image" in value && "args" in value) yield value.args as readonly string[];
    for (const item of Object.values(value)) yield* argumentsIn(item);
  }
}

await tap.test("the manifests pass only arguments that the program takes", async (t) => {
  let checked = 0;
  for (const path of manifests) {
    for (const args of parseAllDocuments(read(path)).flatMap((document) => [...argumentsIn(document.toJS())])) {
      const words = args.filter((arg) => !arg.startsWith("-")).join(" ");
      const command = COMMANDS.find((candidate) => candidate.path === words);
      for (const arg of args.filter((candidate) => candidate.startsWith("-") && command !== undefined)) {
        const [flag = "", value = true] = arg.replace(/^--/, "").split("=");
        t.ok(command?.flags[flag], `${path}: ${words} ${arg}`);
        t.doesNotThrow(() => command?.flags[flag]?.read(value), `${path}: ${words} ${arg}`);
        checked++;
      }
    }
  }
  t.ok(checked > 0);
});

await tap.test("every pod is under a NetworkPolicy that lets in the ports it listens on, and no others", async (t) => {
  const policies = parseAllDocuments(read("deploy/base/network-policy.yaml")).map(
    (document) => (document.toJS() as { spec: NetworkPolicy }).spec,
  );
  const portsInto = (labels: Labels): readonly unknown[] =>
    policies
      .filter((policy) => policy.policyTypes.includes("Ingress") && isSelected(policy, labels))
      .flatMap(({ ingress = [] }) => ingress.flatMap(({ ports }) => ports.map(({ port }) => port)));
  const path = "deploy/base/controller.yaml";
  const pods = parseAllDocuments(read(path)).flatMap((document) => {
    const { kind, spec } = document.toJS() as { kind: string; spec: { template: PodTemplate } };
    return kind === "Deployment" ? [spec.template] : [];
  });
  t.equal(pods.length, 1, path);
  for (const { metadata, spec } of pods) {
    const listening = spec.containers.flatMap(({ ports }) => ports.map(({ name }) => name));
    t.same(new Set(portsInto(metadata.labels)), new Set(listening), path);
  }
  for (const component of ["certificates", "init", "controller"]) {
    const own = policies.filter((policy) => isSelected(policy, labelsOf(component)));
    t.ok(
      own.some(({ policyTypes }) => policyTypes.includes("Ingress")),
      component,
    );
    t.ok(
      own.some(({ policyTypes }) => policyTypes.includes("Egress")),
      component,
    );
  }
  t.same(portsInto(labelsOf("certificates")), []);
});

await tap.test("every pod may ask DNS, at the ports on which its pods listen", async (t) => {
  const [policy] = documentsIn("deploy/base/network-policy.yaml") as readonly {
    spec: NetworkPolicy & {
      egress: readonly { to?: unknown; ports: readonly { protocol: string; port: unknown }[] }[];
    };
  }[];
  for (const component of ["certificates", "init", "controller", "webhook", "test"]) {
    t.ok(policy !== undefined && isSelected(policy.spec, labelsOf(component)), component);
  }
  const open = policy?.spec.egress.filter(({ to }) => to === undefined).flatMap(({ ports }) => ports) ?? [];
  const pairs = open.map(({ port, protocol }) => `${String(port)}/${protocol}`);
  for (const port of [53, 5353, 8053]) {
    for (const protocol of ["UDP", "TCP"]) t.ok(pairs.includes(`${port}/${protocol}`), `${port}/${protocol}`);
  }
  t.same(
    policy?.spec.egress[0]?.ports.map(({ port }) => port),
    [443, 6443, 8443],
    "docs/install.md and the chart add ports to those of API servers",
  );
});

await tap.test("the manifests name the image of this version", async (t) => {
  for (const path of ["deploy/base", "deploy/initializer", "deploy/vendor/job"]) {
    const { images } = parse(read(`${path}/kustomization.yaml`)) as { images: unknown };
    t.same(images, [{ name: "ksvm", newTag: version }], path);
  }
  t.same(parse(read("deploy/vendor/helm-chart/values.yaml")), { migrate: { image: `ksvm:${version}` } });
});

await tap.test("no manifest says which user a pod runs as", async (t) => {
  // OpenShift gives each namespace a range of its own, and refuses pods that ask for another user (restricted-v2).
  const every = globSync("deploy/**/*.{yaml,tpl}", { cwd: fileURLToPath(root) });
  for (const path of every) t.notMatch(read(path), /runAs(User|Group)|fsGroup/, path);
  const pods = every.flatMap(
    (path) => read(path).match(/^\s+securityContext:\n\s+(\S.*\n\s+)*?seccompProfile:/gm) ?? [],
  );
  t.ok(pods.length > 0);
  for (const pod of pods) t.match(pod, "runAsNonRoot: true");
});

/** What `ksvm rbac` prints. */
async function rbacOf(...args: readonly string[]): Promise<string> {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const printed = text(stdout);
  await runProgram(["rbac", ...args], { stdout, stderr, signal: new AbortController().signal });
  stdout.end();
  return await printed;
}

function withoutComments(path: string): string {
  return read(path).replaceAll(/^#.*\n/gm, "");
}

await tap.test("deploy/components/only-these-resources is what ksvm rbac prints", async (t) => {
  const printed = await rbacOf("widgets.example.com", "configmaps", "-o", "component");
  t.equal(withoutComments("deploy/components/only-these-resources/kustomization.yaml"), printed);
});

await tap.test("deploy/vendor/job/rbac.yaml is what ksvm rbac prints", async (t) => {
  const account = ["--name", "crontab-migrate", "--service-account", "crontab-system/crontab-migrate"];
  t.equal(withoutComments("deploy/vendor/job/rbac.yaml"), await rbacOf("crontabs.stable.example.com", ...account));
});

// The tests name their API servers, so that no run of theirs looks for them.
await tap.test("the roles that ksvm rbac prints find the API servers, as those of deploy/ do", async (t) => {
  const printed = rolesForRuns(["widgets.example.com"], { name: "a", leaseNamespace: "elsewhere" });
  const found = printed.map(({ metadata, rules }) => [metadata.namespace, rules]);
  t.same(new Map(found as [string, unknown][]).get("kube-system"), [
    { apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: ["list"] },
  ]);
  t.same(new Map(found as [string, unknown][]).get("default"), [
    { apiGroups: ["discovery.k8s.io"], resources: ["endpointslices"], verbs: ["list"] },
  ]);
  t.match(printed[0]?.rules.at(-1), { nonResourceURLs: ["/metrics"], verbs: ["get"] });
});

await tap.test("an installation has no Job", async (t) => {
  // One that removes itself is missing for Argo CD and Flux, which create it again each time; one that stays cannot be applied again.
  const installed = manifests.filter((path) => /^deploy\/(base|components|chart|initializer|overlays)\//.test(path));
  t.ok(installed.length > 0);
  for (const path of installed) t.notMatch(read(path), /^\s*(- )?kind: Job$/m, path);
});
