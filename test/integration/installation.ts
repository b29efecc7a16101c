import { globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative, resolve } from "node:path";
import type { Test } from "tap";
import { parse } from "yaml";
import { WEBHOOK_NAME } from "../../src/freeze/rule.ts";
import {
  APPLY_PATCH,
  type ApiClient,
  type NewObject,
  type Resource,
  WEBHOOK_CONFIGURATIONS,
  resourcesOf,
} from "../api-client.ts";
import { kubeconfigText } from "../control-plane/kubeconfig.ts";
import type { Cluster } from "./cluster.ts";
import { render } from "./kubectl.ts";

/** Where everything of deploy/base lives. */
export const NAMESPACE = "kube-storage-migration";

const ROOT = join(import.meta.dirname, "../..");

/** Every folder of deploy/ with a kustomization of that kind, relative to the project. */
export function foldersOf(kind: "Kustomization" | "Component"): readonly string[] {
  return globSync("deploy/**/kustomization.yaml", { cwd: ROOT })
    .filter((path) => (parse(readFileSync(join(ROOT, path), "utf8")) as { kind: string }).kind === kind)
    .map(dirname)
    .toSorted();
}

/** What tells one image from another. */
export interface Image {
  readonly newName: string;
  readonly newTag: string;
}

/**
 * Writes an overlay of a folder of deploy/ that chooses the image, as docs/install.md has users do.
 * @param folder relative to the project, such as `deploy/base`
 * @returns its path
 */
export function overlayWithImage(t: Test, folder: string, image: Image): string {
  const overlay = mkdtempSync(join(tmpdir(), "ksvm-overlay-"));
  t.teardown(() => rmSync(overlay, { recursive: true, force: true }));
  const base = relative(overlay, join(ROOT, folder));
  const kustomization = { resources: [base], images: [{ name: "ksvm", ...image }] };
  writeFileSync(join(overlay, "kustomization.yaml"), JSON.stringify(kustomization));
  return overlay;
}

/**
 * Writes an overlay with components of deploy/, as a user does.
 * @param folders relative to the project: the resource first, such as `deploy/base`; absolute ones stay
 * @returns its path
 */
export function overlayOf(t: Test, [resource = "", ...components]: readonly string[]): string {
  const overlay = mkdtempSync(join(tmpdir(), "ksvm-overlay-"));
  t.teardown(() => rmSync(overlay, { recursive: true, force: true }));
  const path = (folder: string): string => relative(overlay, resolve(ROOT, folder));
  const kustomization = { resources: [path(resource)], components: components.map(path) };
  writeFileSync(join(overlay, "kustomization.yaml"), JSON.stringify(kustomization));
  return overlay;
}

/**
 * Applies documents one by one, in their order, as `kubectl apply --server-side` does. Nobody runs pods on these control
 * planes, so nothing of it starts by itself.
 */
export async function applyAll(
  api: ApiClient,
  documents: readonly NewObject[],
  options: { readonly dryRun?: boolean } = {},
): Promise<void> {
  for (const document of documents) {
    await api.patch(
      await resourceOf(api, document),
      nameOf(document),
      { type: APPLY_PATCH, body: document },
      { fieldManager: "kubectl", ...options },
    );
  }
}

/** Applies deploy/base as it is shipped. */
export async function applyBase({ api }: Pick<Cluster, "api">): Promise<void> {
  await applyAll(api, await render("deploy/base"));
}

/** Where the objects of a document's kind live. */
export async function resourceOf(api: ApiClient, { apiVersion = "", kind }: NewObject): Promise<Resource> {
  const [version = "", group = ""] = apiVersion.split("/").toReversed();
  const found = (await resourcesOf(api, { group, version })).find(
    (entry) => entry.kind === kind && !entry.name.includes("/"),
  );
  if (found === undefined) throw new Error(`Cannot apply: nothing serves ${kind} of ${apiVersion}`);
  return { group, version, resource: found.name };
}

function nameOf({ metadata: { name = "", namespace } }: NewObject): { name: string; namespace?: string } {
  return namespace === undefined ? { name } : { name, namespace };
}

/** A token of a service account of the installation (TokenRequest), as its pods would get. */
export async function tokenOf(
  { controlPlane }: Cluster,
  serviceAccount: string,
  namespace: string = NAMESPACE,
): Promise<string> {
  const path = `/api/v1/namespaces/${namespace}/serviceaccounts/${serviceAccount}/token`;
  const request = { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", spec: {} };
  const { status, body } = await controlPlane.request(path, { method: "POST", body: request });
  const { token } = (body as { status?: { token?: string } }).status ?? {};
  if (token === undefined) throw new Error(`Cannot get a token of "${serviceAccount}": ${status}`);
  return token;
}

/**
 * The path of a kubeconfig with the token of a service account of the installation: whatever uses it has exactly the
 * rights that deploy/ gives.
 */
export async function startAsServiceAccount(
  cluster: Cluster,
  serviceAccount: string,
  apiserverIndex = 0,
  namespace: string = NAMESPACE,
): Promise<string> {
  const { apiservers, ca, dir } = cluster.controlPlane;
  const token = await tokenOf(cluster, serviceAccount, namespace);
  const path = join(dir, `${namespace}-${serviceAccount}-${apiserverIndex}.kubeconfig`);
  const server = apiservers[apiserverIndex]?.url ?? "";
  writeFileSync(path, kubeconfigText(server, ca, { name: serviceAccount, token }), { mode: 0o600 });
  return path;
}

/** Has API servers call the installed webhook at a URL: nothing routes to Services here. */
export async function pointWebhookAt(
  { api }: Pick<Cluster, "api">,
  { url, caBundle }: { readonly url: string; readonly caBundle?: string },
): Promise<void> {
  const value = { url, ...(caBundle === undefined ? {} : { caBundle }) };
  const body = [{ op: "replace", path: "/webhooks/0/clientConfig", value }];
  await api.patch(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME }, { type: "application/json-patch+json", body });
}
