import { type CustomResourceDefinition, hasStatusSubresource, movesFields, storageVersionOf } from "../../api/crd.ts";
import { KsvmError } from "../../errors.ts";
import { crdResourceOf } from "../../resources/request-resource.ts";
import { apiVersionOf } from "../kube/resources.ts";
import { type Converted, FieldsConversion } from "./rewrite/convert-fields.ts";
import type { MigrationOptions, RunContext } from "./run-context.ts";

/**
 * The context of a run on a CRD: an object whose spec is rejected points to the way through the status subresource, where
 * there is one.
 * @throws {KsvmError} ResourceNotMigratable where the run is to write through the status subresource, and there is none.
 */
function withStatusOf(context: RunContext, crd: CustomResourceDefinition): RunContext {
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
      `Cannot migrate "${name}" with --via=status: version "${version}" of the CRD has no status subresource`,
    );
  }
  return context;
}

/**
 * How a run writes the objects of a CRD: its context as {@link withStatusOf} has it, and what converts managedFields.
 * @throws as {@link withStatusOf} and {@link conversionOf}
 */
export function waysOf(
  context: RunContext,
  crd: CustomResourceDefinition,
): { readonly context: RunContext; readonly conversion: FieldsConversion | undefined } {
  return { context: withStatusOf(context, crd), conversion: conversionOf(context.options, crd) };
}

/** @throws {KsvmError} ResourceNotMigratable where a run that is for CRDs alone is to migrate a built-in resource. */
export function assertOfCrd(
  { managedFields, subresource }: Pick<MigrationOptions, "managedFields" | "subresource">,
  name: string,
): void {
  const flag = subresource === undefined ? "--managed-fields=convert" : "--via=status";
  if (subresource !== undefined || managedFields === "convert") {
    throw new KsvmError(
      "ResourceNotMigratable",
      `Cannot migrate "${name}" with ${flag}: it is no custom resource; nothing was changed`,
    );
  }
}

/**
 * What converts managedFields in a run on a CRD; `undefined` where the run is not to.
 * @param converted by earlier attempts of the run. @default none
 * @throws {KsvmError} ResourceNotMigratable where it is asked for and a webhook converts the objects: a path in one version may be another one in
 *   the next, and only the webhook knows.
 */
export function conversionOf(
  { managedFields = "auto", subresource }: Pick<MigrationOptions, "managedFields" | "subresource">,
  crd: CustomResourceDefinition,
  converted?: Converted,
): FieldsConversion | undefined {
  // A write of the status leaves managedFields as they are.
  if (managedFields === "keep" || (managedFields === "auto" && (movesFields(crd) || subresource !== undefined))) {
    return undefined;
  }
  if (movesFields(crd)) {
    throw new KsvmError(
      "ResourceNotMigratable",
      `Cannot convert managedFields of "${crd.metadata.name}": a webhook converts its versions, and may move fields; leave out ` +
        "--managed-fields, and have each client apply in the new version",
    );
  }
  return new FieldsConversion(apiVersionOf(crd.spec.group, storageVersionOf(crd)), converted);
}

function adviceFor(name: string): string {
  return `if it is about the spec, try ksvm migrate ${name} --standalone --via=status`;
}
