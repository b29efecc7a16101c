import assert from "node:assert/strict";
import tap from "tap";
import { SimEtcd } from "../model/etcd.ts";
import type { ModelObject } from "../model/model-object.ts";
import type { ModelRequest } from "../model/types.ts";
import type { KindPlan } from "../plan.ts";
import { ControllerProgram } from "../programs/controller-program.ts";
import type { World } from "../world/world.ts";
import { LeaderFenceCheck } from "./leader-fence-check.ts";

const LEASE = "/registry/leases/kube-storage-migration/ksvm-controller";
const DEPLOYMENTS: KindPlan = {
  plural: "deployments",
  versions: ["v1"],
  createdIn: "v1",
  objects: 1,
  isBuiltIn: true,
};

function replica(name: string): ControllerProgram {
  return Object.assign(Object.create(ControllerProgram.prototype) as ControllerProgram, {
    identity: `${name}_1`,
    process: { name, missesTime: false } as ControllerProgram["process"],
  });
}

/** Two replicas, the second of which holds the Lease, and what the check says of a request of the first one. */
function checked(method: string, path: string, { body = "", query = "" } = {}): readonly string[] {
  const etcd = new SimEtcd();
  const violations: string[] = [];
  const schedule = { now: 0 };
  const follower: { sent?: (request: ModelRequest) => void } = {};
  const world = {
    cluster: { etcd, onRequest: (told: (request: ModelRequest) => void) => void (follower.sent = told) },
    plan: { kinds: [DEPLOYMENTS] },
    programs: [replica("ksvm-0-0"), replica("ksvm-1-1")],
    schedule,
    violate: (violation: string) => void violations.push(violation),
  } as unknown as World;
  assert.ok(new LeaderFenceCheck(world));
  const spec = { holderIdentity: "ksvm-1-1_1", leaseDurationSeconds: 15 };
  etcd.put(LEASE, { object: { metadata: {}, spec } as unknown as ModelObject }, 0);
  schedule.now += 60_000;
  const request = { method, path, query: new URLSearchParams(query), headers: {}, body };
  follower.sent?.({ ...request, user: "ksvm-1-1" });
  follower.sent?.({ ...request, user: "ksvm-0-0" });
  return violations;
}

const CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.sim.example.com";
const POLICY = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/ksvm-freeze.widgets.sim.example.com";

await tap.test("a replica that does not hold the Lease writes no object, CRD or policy of a run", (t) => {
  for (const path of [
    "/apis/sim.example.com/v1/namespaces/default/widgets/a",
    "/apis/apps/v1/namespaces/default/deployments/a",
    CRD,
    POLICY,
  ]) {
    t.match(
      checked("PATCH", path),
      [/^leader fence: ksvm-0-0 sends PATCH \S+ as the leader, and "ksvm-1-1_1" holds/],
      path,
    );
  }
  t.end();
});

await tap.test("it creates no policy of a run", (t) => {
  const body = '{"metadata":{"name":"ksvm-freeze.widgets.sim.example.com"}}';
  t.match(checked("POST", POLICY.replace(/\/ksvm-freeze.*/, ""), { body }), [/^leader fence: ksvm-0-0 sends POST/]);
  t.same(checked("POST", POLICY.replace(/\/ksvm-freeze.*/, ""), { body: '{"metadata":{"name":"other"}}' }), []);
  t.end();
});

await tap.test("it may look at them, and clean up after a run of its own", (t) => {
  t.same(checked("GET", CRD), []);
  t.same(checked("PATCH", CRD, { query: "dryRun=All" }), []);
  t.same(checked("PATCH", CRD, { body: '{"metadata":{"annotations":{"ksvm.sigs.k8s.io/migrating":null}}}' }), []);
  t.same(checked("PATCH", CRD, { body: '{"metadata":{"annotations":{"ksvm.sigs.k8s.io/migration-owner":null}}}' }), []);
  t.same(checked("DELETE", POLICY), []);
  t.same(checked("PATCH", POLICY.replace(/ksvm-freeze.*/, "ksvm-unfreeze-warning")), [], "each replica keeps it");
  t.same(checked("PATCH", "/apis/coordination.k8s.io/v1/namespaces/kube-storage-migration/leases/other"), []);
  t.end();
});
