import { globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import t, { type Test } from "tap";
import { parse, parseAllDocuments } from "yaml";
import type { NewObject } from "../../src/kube/client.ts";
import { WEBHOOK_NAME } from "../../src/api/names.ts";
import { overlayOf } from "./installation.ts";
import { ensureKustomize, KUBECTL_VERSIONS, kustomizeBuild } from "../control-plane/kustomize.ts";

const ROOT = join(import.meta.dirname, "../..");

interface Kustomization {
  readonly kind: "Kustomization" | "Component";
}

/** Every folder of deploy/ with a kustomization of that kind. */
function foldersOf(kind: Kustomization["kind"]): readonly string[] {
  return globSync("deploy/**/kustomization.yaml", { cwd: ROOT })
    .filter((path) => (parse(readFileSync(join(ROOT, path), "utf8")) as Kustomization).kind === kind)
    .map(dirname)
    .toSorted();
}

function write(t: Test, files: Readonly<Record<string, string>>): string {
  const folder = mkdtempSync(join(tmpdir(), "ksvm-render-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  return folder;
}

function idOf({ apiVersion, kind, metadata }: NewObject): string {
  return [apiVersion, kind, metadata.namespace, metadata.name].join("/");
}

/** The objects by what names them, so that their order does not count. */
function objectsIn(text: string): Readonly<Record<string, NewObject>> {
  const objects = parseAllDocuments(text).map((document) => document.toJS() as NewObject);
  return Object.fromEntries(objects.map((object) => [idOf(object), object]));
}

function configMapOf(name: string): string {
  return `apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ${name}\n`;
}

const programs = new Map<string, string>();
for (const version of KUBECTL_VERSIONS) programs.set(version, await ensureKustomize(version));

const components = foldersOf("Component");
const cases: readonly { readonly name: string; readonly folder: string }[] = [
  ...foldersOf("Kustomization").map((name) => ({ name, folder: join(ROOT, name) })),
  ...components.map((name) => ({ name: `deploy/base with ${name}`, folder: overlayOf(t, ["deploy/base", name]) })),
  ...(["certificate-files", "certificate-secret", "cert-manager"] as const).map((certificates) => ({
    name: `deploy/base with every component and ${certificates}`,
    folder: overlayOf(t, ["deploy/base", ...inOrder(certificates)]),
  })),
];

/** Every component, in the order of docs/install.md, but of those that say who keeps the certificates only one. */
function inOrder(certificates: "certificate-files" | "certificate-secret" | "cert-manager"): readonly string[] {
  const names = [certificates, "only-these-resources", "control-plane-nodes", "no-kube-system"];
  return names.map((name) => `deploy/components/${name}`);
}

interface Role extends NewObject {
  readonly rules: readonly { readonly resourceNames?: readonly string[] }[];
}

interface Deployment extends NewObject {
  readonly spec: {
    readonly template: {
      readonly spec: {
        readonly containers: readonly { readonly args: readonly string[] }[];
      };
    };
  };
}

for (const { name, folder } of cases) {
  await t.test(`kubectl 1.30, 1.32 and 1.36 render the same objects of ${name}`, async (t) => {
    const rendered = [];
    for (const [version, program] of programs) {
      const { code, stdout, stderr } = await kustomizeBuild(program, folder);
      t.equal(code, 0, `${version}: ${stderr.slice(0, 300)}`);
      rendered.push(objectsIn(stdout));
    }
    t.ok(Object.keys(rendered[0] ?? {}).length > 0);
    for (const objects of rendered.slice(1)) t.same(objects, rendered[0]);
  });
}

await t.test("cert-manager's certificate reaches the webhook", async (t) => {
  const folder = overlayOf(t, ["deploy/base", "deploy/components/cert-manager"]);
  const [program = ""] = programs.values();
  const { stdout } = await kustomizeBuild(program, folder);
  const objects = objectsIn(stdout);
  const { spec } = objects["apps/v1/Deployment/kube-storage-migration/ksvm-controller"] as Deployment;
  const [container] = spec.template.spec.containers;
  t.ok(container?.args.includes("--certificates=secret"));
  t.ok(container?.args.includes("--cert-secret=ksvm-webhook-tls"));
  const { rules } = objects[
    "rbac.authorization.k8s.io/v1/Role/kube-storage-migration/storage-migrator-webhook"
  ] as Role;
  t.same(
    rules.map(({ resourceNames }) => resourceNames),
    [["ksvm-webhook-tls"]],
    "whose account may read it",
  );
  const ids = Object.keys(objects);
  t.ok(ids.includes("cert-manager.io/v1/Certificate/kube-storage-migration/ksvm-webhook"));
  t.notOk(ids.some((id) => id.includes("storage-migrator-certificates") || id.includes("CronJob")));
  const { metadata } = objects[
    `admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration//${WEBHOOK_NAME}`
  ] as NewObject;
  const { annotations = {} } = metadata;
  t.equal(annotations["cert-manager.io/inject-ca-from"], "kube-storage-migration/ksvm-webhook");
});

await t.test(
  "no-kube-system grants a ClusterRole on the Leases of API servers, with each keeper of certificates",
  async (t) => {
    const [program = ""] = programs.values();
    const component = "deploy/components/no-kube-system";
    for (const [folders, accounts] of [
      [
        ["deploy/base", component],
        ["storage-migrator-certificates", "storage-migrator"],
      ],
      [["deploy/base", component, "deploy/components/certificate-files"], ["storage-migrator"]],
      [["deploy/overlays/cert-manager", component], ["storage-migrator"]],
    ] as const) {
      const { stdout } = await kustomizeBuild(program, overlayOf(t, folders));
      const objects = Object.values(objectsIn(stdout));
      t.same(
        objects.filter(({ metadata }) => metadata.namespace === "kube-system"),
        [],
      );
      const found = objects.filter(({ metadata }) => metadata.name?.endsWith("-identities") === true);
      const role = found.find(({ kind }) => kind === "ClusterRole");
      const bindings = found.filter((object) => object !== role);
      t.match(role, {
        kind: "ClusterRole",
        rules: [{ apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: ["get", "list", "watch"] }],
      });
      const subjects = bindings.map((binding) => {
        t.match(binding, { kind: "ClusterRoleBinding", roleRef: { kind: "ClusterRole", name: role?.metadata.name } });
        return (binding as unknown as { readonly subjects: readonly { readonly name: string }[] }).subjects[0]?.name;
      });
      t.same(new Set(subjects), new Set(accounts), folders.join(", "));
    }
  },
);

await t.test("negative control: several deletions in one file end kubectl 1.30 and 1.32", async (t) => {
  const names = ["a", "b", "c"];
  const folder = write(t, {
    "all.yaml": names.map(configMapOf).join("---\n"),
    "deletions.yaml": names.map((name) => `$patch: delete\n${configMapOf(name)}`).join("---\n"),
    "kustomization.yaml": JSON.stringify({ resources: ["all.yaml"], patches: [{ path: "deletions.yaml" }] }),
  });
  const codes = [];
  for (const program of programs.values()) codes.push((await kustomizeBuild(program, folder)).code === 0);
  t.same(codes, [false, false, true]);
});
