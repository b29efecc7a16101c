// Copies deploy/base and its components into the files of the Helm chart: node tools/chart.ts
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parse, parseAllDocuments, stringify } from "yaml";
import { render } from "../test/integration/kubectl.ts";
import { runScript } from "../bench/run-script.ts";

const ROOT = join(import.meta.dirname, "..");
const FILES = join(ROOT, "deploy/chart/files");
/** Those that values of the chart stand for. `only` of the values is only-these-resources. */
const COMPONENTS = [
  "certificate-files",
  "certificate-secret",
  "cert-manager",
  "control-plane-nodes",
  "deny-unproven-prunes",
  "no-kube-system",
  "monitoring",
] as const;

interface Kustomization {
  readonly resources?: readonly string[];
  readonly components?: readonly string[];
  readonly patches?: readonly { readonly target?: object; readonly patch: string }[];
  readonly configMapGenerator?: readonly {
    readonly name: string;
    readonly namespace: string;
    readonly files: readonly string[];
    readonly options: { readonly labels: Readonly<Record<string, string>> };
  }[];
}

/** What a component does, one step after the other. */
interface Step {
  readonly resources?: readonly unknown[];
  readonly patches?: readonly { readonly target: object; readonly delete?: true; readonly operations?: unknown }[];
}

/** The text of each file of the chart that follows from deploy/, by its name. */
export async function chartFiles(): Promise<ReadonlyMap<string, string>> {
  const components = Object.fromEntries(COMPONENTS.map((name) => [name, stepsOf(join("deploy/components", name))]));
  return new Map([
    ["base.yaml", textOf(await render("deploy/base"))],
    ["components.yaml", textOf(components)],
  ]);
}

function textOf(content: unknown): string {
  return `# Written by "make chart" from deploy/base and deploy/components.\n${stringify(content, { aliasDuplicateObjects: false, lineWidth: 0 })}`;
}

function stepsOf(folder: string): readonly Step[] {
  const read = (file: string): string => readFileSync(join(ROOT, folder, file), "utf8");
  const { components = [], configMapGenerator = [], patches = [], resources = [] } = parse(
    read("kustomization.yaml"),
  ) as Kustomization;
  const objects = resources.flatMap((file) => parseAllDocuments(read(file)).map((document) => document.toJS() as unknown));
  const configMaps = configMapGenerator.map(({ files, name, namespace, options: { labels } }) => ({
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: { name, namespace, labels },
    data: Object.fromEntries(files.map((entry) => [entry.split("=")[0], read(entry.split("=")[1] ?? entry)])),
  }));
  return [
    { resources: [...objects, ...configMaps] },
    ...components.flatMap((nested) => stepsOf(join(folder, nested))),
    { patches: patches.flatMap(patchOf) },
  ];
}

/** A patch without a target changes nothing: it only makes Kustomize insist on an order, which the chart has by itself. */
function patchOf({ patch, target }: NonNullable<Kustomization["patches"]>[number]): NonNullable<Step["patches"]> {
  if (target === undefined) {
    return [];
  }
  const operations: unknown = parse(patch);
  return [Array.isArray(operations) ? { target, operations } : { target, delete: true }];
}

if (import.meta.main) {
  await runScript(async () => {
    for (const [name, text] of await chartFiles()) {
      writeFileSync(join(FILES, name), text);
    }
  });
}
