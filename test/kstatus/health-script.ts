import { readFileSync } from "node:fs";
import { parse } from "yaml";

const DOCS = new URL("../../docs/gitops.md", import.meta.url);
const KEY = "resource.customizations.health.migration.k8s.io_StorageVersionMigration";

/** The health script for Argo CD, as docs/gitops.md has users put it into the ConfigMap argocd-cm. */
export function healthScript(): string {
  const blocks = [...readFileSync(DOCS, "utf8").matchAll(/^```yaml\n(.*?)^```$/gms)].map(([, block = ""]) => block);
  const block = blocks.find((text) => text.includes(KEY)) ?? "";
  const { data } = parse(block) as { readonly data: Readonly<Record<string, string>> };
  return data[KEY] ?? "";
}
