import { type CustomResourceDefinition, storedVersionsOf } from "../api/crd.ts";
import { type JsonObject, listIn, objectIn } from "../api/json-fields.ts";
import { UPGRADE_FIELD_MANAGER } from "../api/names.ts";
import { DoubtfulAnswer } from "../old/kube/errors.ts";
import { failureKindOf } from "../old/kube/failure.ts";
import { CRDS, JSON_PATCH, MERGE_PATCH } from "../old/kube/resources.ts";
import type { CrdManifest } from "../plan/crd-manifests.ts";
import { crdReplacement, type CrdWrite } from "../plan/crd-replacement.ts";
import { readCrd } from "../resources/crds.ts";
import type { CallContext } from "../old/retry/call-context.ts";

/** No object has it: the answer is empty, and the API server converts every object for it. */
const NO_OBJECT = "ksvm.sigs.k8s.io/no-object";
const PROBE_PAGE = 500;

/**
 * Writes a CRD as a server-side dry run: what the API server, webhooks and policies say of it.
 * @throws {ApiError | KsvmError}
 */
export async function tryWrite(context: CallContext, live: CustomResourceDefinition, write: CrdWrite): Promise<void> {
  await send(context, live, write, true);
}

/**
 * Writes a CRD, after a dry run, if it is still as it was read.
 * @throws {ApiError} Conflict where another client wrote it in between.
 */
export async function writeCrd(
  context: CallContext,
  live: CustomResourceDefinition,
  write: CrdWrite,
): Promise<CustomResourceDefinition> {
  await tryWrite(context, live, write);
  return await send(context, live, write, false);
}

function send(
  { client, retrier, signal }: CallContext,
  live: CustomResourceDefinition,
  write: CrdWrite,
  dryRun: boolean,
): Promise<CustomResourceDefinition> {
  const { name, resourceVersion, uid } = live.metadata;
  // A resourceVersion that is not the current one is a conflict; so the spec is replaced as a whole, with what is left
  // out.
  const body = [
    { op: "replace", path: "/metadata/resourceVersion", value: resourceVersion },
    { op: "replace", path: "/metadata/uid", value: uid },
    ...crdReplacement(live, write),
  ];
  const options = { fieldManager: UPGRADE_FIELD_MANAGER, dryRun, signal };
  const patch = { type: JSON_PATCH, body };
  return retrier.run(() => client.patch<CustomResourceDefinition>(CRDS, { name }, patch, options), signal);
}

/**
 * Creates the CRD of a file that the cluster does not have.
 * @throws {ApiError | KsvmError} Conflict where another client was faster.
 */
export async function createCrd(
  { client, retrier, signal }: CallContext,
  { name, object }: CrdManifest,
): Promise<void> {
  const body = { ...object, metadata: { ...(object["metadata"] as JsonObject), name } };
  const options = { fieldManager: UPGRADE_FIELD_MANAGER, signal };
  await retrier.run(() => client.create(CRDS, body, { ...options, dryRun: true }), signal);
  await retrier.run(() => client.create(CRDS, body, options), signal);
}

/**
 * Takes our entries out of managedFields. What no manager owns is in no one's way when it is applied.
 * @throws {ApiError} Conflict where another client wrote the CRD in between.
 */
export async function handOver(
  { client, retrier, signal }: CallContext,
  live: CustomResourceDefinition,
): Promise<void> {
  const { managedFields = [], name, resourceVersion, uid } = live.metadata;
  const left = managedFields.filter(({ manager }) => manager !== UPGRADE_FIELD_MANAGER);
  const patch = { type: MERGE_PATCH, body: { metadata: { uid, resourceVersion, managedFields: left } } };
  const options = { fieldManager: UPGRADE_FIELD_MANAGER, signal };
  await retrier.run(() => client.patch(CRDS, { name }, patch, options), signal);
}

/**
 * Waits until every object can be read in a version, as with a conversion webhook that is not up yet.
 * @throws {KsvmError} RetryBudgetExceeded where that takes too long; {ApiError} where an object cannot be converted.
 */
export async function awaitReadable(
  { client, retrier, signal }: CallContext,
  { spec: { group, names } }: CustomResourceDefinition,
  version: string,
): Promise<void> {
  const list = async (): Promise<void> => {
    try {
      const resource = { group, version, resource: names.plural };
      await client.listMetadata(resource, { labelSelector: NO_OBJECT, limit: PROBE_PAGE, signal });
    } catch (error) {
      // For a moment after it was added.
      throw failureKindOf(error) === "unserved" ? new DoubtfulAnswer(`${version} is not served yet`, error) : error;
    }
  };
  await retrier.run(list, signal);
}

/**
 * Puts the spec back as it was before a version was added or served.
 * @returns whether it was: not where the version was added and is stored by now, or another client wrote the CRD
 */
export async function takeBack(
  context: CallContext,
  name: string,
  { added, before, version }: { readonly added: string; readonly before: JsonObject; readonly version: string },
): Promise<boolean> {
  const live = await readCrd(context, name);
  const isAdded = listIn(before["versions"]).every((one) => objectIn(one)?.["name"] !== version);
  if (live.metadata.resourceVersion !== added || (isAdded && storedVersionsOf(live).includes(version))) {
    return false;
  }
  await handOver(context, await writeCrd(context, live, { spec: before }));
  return true;
}
