import { findCrd } from "../resources/read-crd.ts";
import { servedByCrd } from "../resources/request-resource.ts";
import { findResource } from "../resources/served-resource.ts";
import { withoutFreeze } from "../migrator/migrate-built-in.ts";
import type { RunContext } from "../migrator/run-context.ts";
import type { Verification } from "./verification.ts";
import { VerifyRun } from "./verify-run.ts";

/**
 * Shows that every object of a resource is stored as the API servers store it now, or which ones are not. It holds the Lease of
 * the resource, so that no run of this project repairs what it is to find.
 *
 * @param name `plural.group` of a CRD or a built-in resource, the plural alone in the core group
 * @throws {KsvmError} with the reason where nothing was shown.
 */
export async function verify(context: RunContext, name: string): Promise<Verification> {
  const { client, retrier, signal } = context;
  const crd = await retrier.run(() => findCrd(client, name, { signal }), signal);
  const crdName = crd?.metadata.name;
  const resource =
    crd === undefined ? await retrier.run(() => findResource(client, name, { signal }), signal) : servedByCrd(crd);
  return withoutFreeze(context, { resource, crdName, work: new VerifyRun(context, resource, crdName) });
}
