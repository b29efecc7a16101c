import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parse } from "yaml";
import type { CustomResourceDefinition } from "../crd.ts";
import { CRDS, type NewObject } from "../api-client.ts";
import { type Cluster, eventually } from "./cluster.ts";

const FOLDER = join(import.meta.dirname, "../../deploy/base/crds");

/** The CRDs as they are shipped. */
export function shippedCrds(): readonly NewObject[] {
  const files = globSync("*.yaml", { cwd: FOLDER }).toSorted();
  const objects = files.map((file) => parse(readFileSync(join(FOLDER, file), "utf8")) as NewObject);
  return objects.filter(({ kind }) => kind === "CustomResourceDefinition");
}

/** Installs the shipped CRDs and waits until their objects can be listed. */
export async function installCrds({ api }: Pick<Cluster, "api">): Promise<void> {
  const crds = shippedCrds();
  for (const crd of crds) {
    await api.create(CRDS, crd);
  }
  for (const { spec } of crds as unknown as readonly CustomResourceDefinition[]) {
    const resource = { group: spec.group, version: "v1alpha1", resource: spec.names.plural };
    const isServed = (): Promise<boolean> =>
      api.listMetadata(resource, { limit: 1 }).then(
        () => true,
        () => false,
      );
    await eventually(isServed, `${spec.names.plural}.${spec.group} is served`);
  }
}
