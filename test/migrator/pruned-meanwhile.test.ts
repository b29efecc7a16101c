import tap from "tap";
import type { CustomResourceDefinition } from "../../src/api/crd.ts";
import { STORAGE_MIGRATING_CONDITION } from "../../src/api/names.ts";
import { UNSEEN_ARRIVALS } from "../../src/apiservers/arrivals.ts";
import type { ApiRequest } from "../../src/kube/api-request.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { collectionPath, CRDS, LEASES } from "../../src/kube/resources.ts";
import type { Transport } from "../../src/kube/transport.ts";
import { migrateCrd } from "../../src/migrator/migrate-crd.ts";
import type { MigrationResult } from "../../src/migrator/result.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { crdWith } from "../api/crd-with.ts";
import { FakeClock } from "../fake-clock.ts";

const GROUPS = [{ name: "apps", preferredVersion: { version: "v1" }, versions: [{ version: "v1" }] }];
const LEASE_PATH = collectionPath(LEASES, "kube-system");

/** An API server that has this CRD, and a Lease that nobody holds. */
function serverOf(crd: CustomResourceDefinition) {
  let lease: object | undefined;
  let revision = 1;
  return async ({ body, method, path }: ApiRequest): Promise<unknown> => {
    if (path === "/apis") return { kind: "APIGroupList", groups: GROUPS };
    if (path.endsWith("/selfsubjectaccessreviews")) return { status: { allowed: true } };
    if (path === `${collectionPath(CRDS)}/${crd.metadata.name}`) return crd;
    if (path.startsWith(LEASE_PATH) && (method === "POST" || method === "PATCH")) {
      const { metadata, spec } = body as { metadata: object; spec: object };
      const name = "ksvm-migrate.widgets.example.com";
      lease = { metadata: { name, uid: "l", ...metadata, resourceVersion: String(revision++) }, spec };
      return lease;
    }
    const name = decodeURIComponent(path.split("/").at(-1) ?? "");
    if (method === "DELETE") return { kind: "Status", status: "Success", details: { name } };
    const answer = { kind: "Status", reason: "NotFound", message: "not found", details: { name } } as const;
    throw new ApiError(`${method} ${path}`, 404, { answer });
  };
}

/** What becomes of a run that found work to do, where the CRD is this one once it has its Lease. */
function migrated(meanwhile: CustomResourceDefinition): Promise<MigrationResult> {
  const clock = new FakeClock();
  const answer = serverOf(meanwhile);
  const request = async (asked: ApiRequest): Promise<unknown> => ({ status: 200, body: await answer(asked) });
  const transport = { server: "https://stand-in", request, fencedBy: () => transport };
  const context = {
    arrivals: UNSEEN_ARRIVALS,
    client: new ApiClient(transport as unknown as Transport),
    clock,
    emit: () => undefined,
    findApiServers: async () => {
      throw new Error("the run begins");
    },
    identity: "host_1",
    options: { force: false, guard: "policy", leaseNamespace: "kube-system" },
    purpose: "ksvm migrate",
    retrier: new Retrier({ clock, random: () => 0.5 }),
    signal: new AbortController().signal,
  } as unknown as RunContext;
  return migrateCrd(context, crdWith());
}

await tap.test("migrateCrd() takes a CRD that was pruned while it waited for its Lease for clean", async (t) => {
  t.match(await migrated(crdWith({ storedVersions: ["v2"] })), { outcome: "nothing-to-do" });
});

await tap.test(
  "migrateCrd() does not where only Kubernetes' own migrator may have done that, which proves nothing",
  async (t) => {
    const condition = { type: STORAGE_MIGRATING_CONDITION, status: "False", reason: "MigrationFailed" };
    const pruned = { ...crdWith(), status: { storedVersions: ["v2"], conditions: [condition] } };
    await t.rejects(migrated(pruned), /the run begins/);
  },
);
