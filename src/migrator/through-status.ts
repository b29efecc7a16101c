import { type CustomResourceDefinition, hasStatusSubresource } from "../api/crd.ts";
import { KsvmError } from "../errors.ts";
import { crdResourceOf } from "../resources/request-resource.ts";
import type { MigrationOptions, RunContext } from "./run-context.ts";

/**
 * The context of a run on a CRD: an object whose spec is rejected points to the way through the status subresource, where
 * there is one.
 * @throws {KsvmError} ResourceNotMigratable where the run is to write through the status subresource, and there is none.
 */
export function withStatusOf(context: RunContext, crd: CustomResourceDefinition): RunContext {
  const { subresource } = context.options;
  const { name } = crd.metadata;
  if (subresource === undefined) {
    const hasStatus = hasStatusSubresource(crd);
    return hasStatus ? { ...context, adviceOnRejection: adviceFor(name) } : context;
  }
  if (!hasStatusSubresource(crd)) {
    const { version } = crdResourceOf(crd);
    throw new KsvmError(
      "ResourceNotMigratable",
      `Cannot migrate "${name}" with --via=status: version "${version}" of the CRD has no status subresource; nothing was changed`,
    );
  }
  return context;
}

/** @throws {KsvmError} ResourceNotMigratable where a run that is for CRDs alone is to migrate a built-in resource. */
export function assertOfCrd({ subresource }: Pick<MigrationOptions, "subresource">, name: string): void {
  if (subresource !== undefined) {
    throw new KsvmError(
      "ResourceNotMigratable",
      `Cannot migrate "${name}" with --via=status: it is no custom resource; nothing was changed`,
    );
  }
}

function adviceFor(name: string): string {
  return `if it is about the spec, try ksvm migrate ${name} --standalone --via=status`;
}
