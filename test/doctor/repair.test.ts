import tap from "tap";
import { MIGRATING_ANNOTATION, OWNER_ANNOTATION } from "../../src/api/names.ts";
import { formatOwner } from "../../src/api/owner.ts";
import type { Lease } from "../../src/api/lease.ts";
import type { Finding } from "../../src/doctor/doctor-types.ts";
import { type RepairContext, repairCrd } from "../../src/doctor/repair.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { CRDS, LEASES, type Resource } from "../../src/kube/resources.ts";
import { leaseNameOf } from "../../src/lease/lease-acquire.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { crdWith } from "../api/crd-with.ts";
import { FakeClock } from "../fake-clock.ts";
import { LeaseServer } from "../lease/lease-server.ts";

const NAME = "widgets.example.com";
const FOUND = ["stuck-freeze", "stale-stored-versions"].map(
  (finding) => ({ finding, severity: "action", object: NAME }) as unknown as Finding,
);

/** A CRD that a run froze, whose Lease is held by this client. */
async function repairedOf(holderIdentity: string) {
  const [server, clock] = [new LeaseServer(), new FakeClock()];
  const spec = { holderIdentity, leaseDurationSeconds: 15 };
  server.lease = { metadata: { name: "held", uid: "uid-0", resourceVersion: "1" }, spec };
  const owner = { lease: `kube-system/${leaseNameOf(NAME)}`, identity: "dead", since: "2026-01-01T00:00:00.000Z" };
  const crd = crdWith();
  Object.assign(crd.metadata, {
    annotations: { [MIGRATING_ANNOTATION]: "true", [OWNER_ANNOTATION]: formatOwner(owner) },
  });
  const leases = server.client as unknown as Record<
    string,
    (resource: Resource, ...rest: unknown[]) => Promise<unknown>
  >;
  const other = (resource: Resource): unknown => (resource === CRDS ? crd : undefined);
  const call =
    (verb: "find" | "patch" | "delete" | "create") =>
    async (resource: Resource, ...rest: unknown[]): Promise<unknown> =>
      resource === LEASES ? leases[verb]?.(resource, ...rest) : other(resource);
  const client = {
    find: call("find"),
    get: call("find"),
    patch: call("patch"),
    delete: call("delete"),
    create: call("create"),
    transport: {
      server: "https://local",
      request: async () => ({
        status: 200,
        body: { kind: "APIGroupList", groups: [{ name: "apps", versions: [], preferredVersion: {} }] },
      }),
    },
    fencedBy: () => client,
  };
  const seen: { left?: Lease | undefined; isTold: boolean } = { isTold: false };
  const context = {
    client: client as unknown as ApiClient,
    clock,
    retrier: new Retrier({ clock, random: () => 0.5 }),
    signal: new AbortController().signal,
    identity: "doctor",
    leaseNamespace: "kube-system",
    tell: () => undefined,
    onTakeOver: () => (seen.isTold = true),
    migrate: async () => {
      seen.left = server.lease;
      return { outcome: "migrated" };
    },
  } as unknown as RepairContext;
  await repairCrd(context, NAME, FOUND);
  return { holder: seen.left?.spec?.holderIdentity, isTold: seen.isTold };
}

await tap.test("a repair that takes over the Lease of a dead run leaves it as that of one", async (t) => {
  const repaired = await repairedOf("dead");
  t.match(repaired.holder, /^doctor\//, "the run that follows, in this process or another, waits for late writes");
  t.ok(repaired.isTold);
});

await tap.test("a repair gives a Lease up that nobody held", async (t) => {
  const repaired = await repairedOf("");
  t.equal(repaired.holder, undefined);
  t.notOk(repaired.isTold);
});
