import { type ApiServerOptions, askEach } from "../apiservers/find.ts";
import { KsvmError, messageOf } from "../errors.ts";
import type { Client } from "../kube/client.ts";
import { ApiError } from "../kube/errors.ts";
import { type Crd, CRDS, JSON_PATCH, METADATA, storageVersion } from "../kube/objects.ts";
import { CRD_FIELD_MANAGER, FREEZE_REASON, freezeLifted, type Guard, MIGRATING } from "./rule.ts";

/** An API server observes a new policy within a second or two. */
const PROVE_MS = 30_000;
const PAUSE_MS = 200;
/** An API server gives up on a write after 34 s, and says so. */
const DRY_RUN_MS = 40_000;

/**
 * Proves on every API server, found anew, that our guard is in force: a dry-run change of the storage version is denied
 * by it, by name and reason, and a dry-run change of a label passes. Nothing else is proof: a guard may be installed
 * and not observed yet, and another webhook may deny everything.
 *
 * @returns how many API servers there are
 * @throws {KsvmError} FreezeNotProven, naming the API server: it may be silent, or the pods of the webhook roll, so
 * that another attempt is worth it; FreezeLifted
 */
export async function proveFreeze(
  client: Client,
  options: ApiServerOptions,
  { crdName, guard, signal }: { readonly crdName: string; readonly guard: Guard; readonly signal: AbortSignal },
): Promise<number> {
  const { clock } = client;
  const ask = async (apiServer: Client, asking: AbortSignal): Promise<void> => {
    const start = clock.monotonic();
    for (;;) {
      const reason = await doubt(apiServer, crdName, guard, asking).catch((error: unknown) => {
        asking.throwIfAborted();
        if (error instanceof ApiError) return messageOf(error);
        throw error;
      });
      if (reason === undefined) return;
      if (clock.monotonic() - start > PROVE_MS) {
        const text = `Cannot prove that the storage version of "${crdName}" is frozen by ${guard.kind} "${guard.name}"`;
        throw new KsvmError("FreezeNotProven", `${text} on ${apiServer.address}: ${reason}; nothing was pruned`);
      }
      await clock.sleep(PAUSE_MS, asking);
    }
  };
  return (await askEach(client, options, ask, signal)).answers.length;
}

/** Why the guard is not proven on an API server; `undefined` where it is. */
async function doubt(
  apiServer: Client,
  crdName: string,
  guard: Guard,
  signal: AbortSignal,
): Promise<string | undefined> {
  const path = `${CRDS}/${crdName}`;
  const crd = await apiServer.get<Crd>(path, { signal, timeoutMs: 15_000 });
  if (crd.metadata.annotations?.[MIGRATING] === undefined) throw freezeLifted(crdName);
  const dryRun = (patch: readonly object[]): Promise<unknown> => {
    const atVersion = { op: "add", path: "/metadata/resourceVersion", value: crd.metadata.resourceVersion };
    const options = { dryRun: true, fieldManager: CRD_FIELD_MANAGER, accept: METADATA, signal, timeoutMs: DRY_RUN_MS };
    return apiServer.patch(path, [atVersion, ...patch], options, JSON_PATCH);
  };
  try {
    await dryRun(storageChange(crd));
    return "a dry-run change of the storage version was accepted";
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (!isDenialBy(guard, crdName, error)) return messageOf(error);
  }
  const labels = { ...crd.metadata.labels, "ksvm.sigs.k8s.io/freeze-probe": "true" };
  await dryRun([{ op: "add", path: "/metadata/labels", value: labels }]);
  return undefined;
}

/** A JSON patch that makes another version the storage version. One is added where there is none; no schema is sent. */
export function storageChange(crd: Crd): readonly object[] {
  const { versions } = crd.spec;
  const from = versions.findIndex(({ name }) => name === storageVersion(crd));
  const other = versions.findIndex(({ storage }) => !storage);
  const to = other === -1 ? versions.length : other;
  const added = [
    { op: "copy", from: "/spec/versions/0", path: `/spec/versions/${to}` },
    { op: "add", path: `/spec/versions/${to}/name`, value: "v0ksvmprobe" },
    { op: "add", path: `/spec/versions/${to}/served`, value: false },
  ];
  return [
    ...(other === -1 ? added : []),
    { op: "add", path: `/spec/versions/${from}/storage`, value: false },
    { op: "add", path: `/spec/versions/${to}/storage`, value: true },
  ];
}

/**
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/errors/statuserror.go
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/admission/plugin/policy/validating/dispatcher.go
 */
function isDenialBy({ kind, name }: Guard, crdName: string, { said }: ApiError): boolean {
  const prefix =
    kind === "webhook"
      ? `admission webhook "${name}" denied the request: `
      : `customresourcedefinitions.apiextensions.k8s.io "${crdName}" is forbidden: ` +
        `ValidatingAdmissionPolicy '${name}' with binding '${name}' denied request: `;
  return said.startsWith(`${prefix}${FREEZE_REASON}:`);
}
