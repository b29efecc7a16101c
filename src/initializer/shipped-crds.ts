import { existsSync, readdirSync, readFileSync } from "node:fs";
import { parse } from "yaml";
import { KsvmError } from "../errors.ts";
import type { Crd } from "../kube/objects.ts";

/** Beside dist/ and beside src/. */
const FOLDER = ["../deploy/base/crds/", "../../deploy/base/crds/"]
  .map((path) => new URL(path, import.meta.url))
  .find((folder) => existsSync(folder));

/** A CRD as it is shipped: it has no uid yet. */
export type ShippedCrd = Omit<Crd, "metadata"> & {
  readonly metadata: Pick<Crd["metadata"], "name" | "labels" | "annotations">;
};

let known: readonly ShippedCrd[] | undefined;

/** The CRDs of migration.k8s.io, which are read once. */
export function shippedCrds(): readonly ShippedCrd[] {
  known ??= readAll();
  return known;
}

function readAll(): readonly ShippedCrd[] {
  if (FOLDER === undefined)
    throw new KsvmError("Internal", "Cannot find deploy/base/crds: it is shipped with this program");
  const files = readdirSync(FOLDER).filter((file) => file.endsWith(".yaml"));
  return files
    .toSorted((a, b) => a.localeCompare(b))
    .map((file) => parse(readFileSync(new URL(file, FOLDER), "utf8")) as ShippedCrd)
    .filter(({ kind }) => kind === "CustomResourceDefinition");
}
