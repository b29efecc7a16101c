// Three versions of kubectl render deploy/ alike. Their kustomize is built from Go modules, which takes minutes on a new machine.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t, { type Test } from "tap";
import { parseAllDocuments } from "yaml";
import type { NewObject } from "../api-client.ts";
import { foldersOf, overlayOf } from "../integration/installation.ts";
import { ensureKustomize, KUBECTL_VERSIONS, kustomizeBuild } from "../control-plane/kustomize.ts";

const ROOT = join(import.meta.dirname, "../..");

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
