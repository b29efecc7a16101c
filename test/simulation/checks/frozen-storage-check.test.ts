import tap from "tap";
import { SYSTEM_NAMESPACE } from "../../../src/api/migration.ts";
import { policyGuardOf } from "../../../src/freeze/guard-install.ts";
import { leaseNameOf } from "../../../src/lease/lease-acquire.ts";
import { SimEtcd } from "../model/etcd.ts";
import type { ModelObject } from "../model/model-object.ts";
import type { ModelRequest } from "../model/types.ts";
import type { KindPlan } from "../plan.ts";
import { crdNameOf, objectsPrefixOf } from "../world/kinds.ts";
import type { ApiServerNode } from "../world/api-server-node.ts";
import { CRDS } from "../world/user-actions.ts";
import type { World } from "../world/world.ts";
import { FrozenStorageCheck } from "./frozen-storage-check.ts";

const KIND: KindPlan = { plural: "widgets", versions: ["v1alpha1", "v1"], createdIn: "v1alpha1", objects: 1 };
const OTHER: KindPlan = { ...KIND, plural: "gadgets" };
const CONTROLLER = "ksvm-0-0";
const NEXT_LEADER = "ksvm-1-0";
const MINUTE_MS = 60_000;

const processOf = (name: string) => ({ name, isPaused: false, wokeAfter: () => Number.NEGATIVE_INFINITY });

/** A CRD that a controller has frozen, its objects, and what the check says. */
function checked() {
  const etcd = new SimEtcd();
  const violations: string[] = [];
  let writer = "user";
  const follower: { sent?: (request: ModelRequest) => void } = {};
  const next: { look?: () => void } = {};
  const schedule = { now: 0, in: (_ms: number, run: () => void) => void (next.look = run) };
  const witnesses: World["witnesses"] = [];
  const leaving: ApiServerNode[] = [];
  const requests: { since?: number } = {};
  const cluster: { etcd: SimEtcd; onRequest: unknown; onExchange: World["cluster"]["onExchange"] } = {
    etcd,
    onRequest: (told: (request: ModelRequest) => void) => void (follower.sent = told),
    onExchange: () => () => undefined,
  };
  const world = {
    cluster,
    plan: { kinds: [KIND, OTHER] },
    programs: [CONTROLLER, NEXT_LEADER].map((name) => ({ process: processOf(name), endText: undefined })),
    settings: { options: { maxFreezeIdleMs: 5 * MINUTE_MS } },
    schedule,
    witnesses,
    violate: (violation: string) => void violations.push(violation),
  } as unknown as World;
  const put = (by: string, key: string, object: object): void => {
    writer = by;
    etcd.put(key, { object: object as ModelObject }, etcd.get(key)?.modRevision ?? 0);
  };
  const object = (by: string, index: number, kind = KIND): void =>
    put(by, `${objectsPrefixOf(kind)}${index}`, { metadata: { uid: `${index}` } });
  const crd = (by: string, annotations: object, storage = "v1"): void =>
    put(by, `/registry/apiextensions.k8s.io/customresourcedefinitions/${crdNameOf(KIND)}`, {
      metadata: { name: crdNameOf(KIND), uid: "1", annotations },
      spec: { versions: KIND.versions.map((name) => ({ name, storage: name === storage })) },
    });
  const policy = (by: string, kind: KindPlan): void =>
    put(by, `/registry/validatingadmissionpolicies/${policyGuardOf(crdNameOf(kind)).name}`, { metadata: {} });
  const check = new FrozenStorageCheck(world, () => writer, [() => leaving[0], () => requests.since]);
  for (let index = 0; index < 20; index++) for (const kind of [KIND, OTHER]) object("user", index, kind);
  crd("user", {});
  crd(CONTROLLER, { "ksvm.sigs.k8s.io/migrating": "true" });
  return {
    check,
    crd,
    leaving,
    object,
    policy,
    requests,
    /** The controller says that all API servers have converged, as a run of the command line does. */
    converge: (): void => {
      const told = { type: "converged", apiServers: [] } as const;
      for (const witness of witnesses) witness({ name: CONTROLLER } as never).told(told);
    },
    /** A process takes the Lease of the run on the CRD, or renews it. */
    take: (by: string): void =>
      put(by, `/registry/leases/${SYSTEM_NAMESPACE}/${leaseNameOf(crdNameOf(KIND))}`, {
        metadata: {},
        spec: { holderIdentity: `${by}_1/1`, leaseDurationSeconds: 120 },
      }),
    /** A request of a process for the CRD fails. */
    fail: (by: string): void => {
      const request = { method: "PATCH", path: `${CRDS}/${crdNameOf(KIND)}`, query: new URLSearchParams() };
      cluster.onExchange(request as ModelRequest, { name: by } as never)({ status: 500 } as never);
    },
    violations,
    /** The controller sends a write of an object, whatever comes of it. */
    send: (): void => {
      const path = "/apis/sim.example.com/v1/namespaces/default/widgets/widgets-0";
      follower.sent?.({ method: "PATCH", path, query: new URLSearchParams(), headers: {}, body: "", user: CONTROLLER });
    },
    /** A minute passes, for each of these times; at its end the check looks. */
    pass: (minutes: number, each: (minute: number) => void = () => undefined): void => {
      for (let minute = 0; minute < minutes; minute++) {
        schedule.now += MINUTE_MS;
        each(minute);
        next.look?.();
      }
    },
  };
}

await tap.test("a controller that writes no object lifts its freeze after --max-freeze-idle and two minutes", (t) => {
  const { pass, send, violations } = checked();
  send();
  pass(7);
  t.same(violations, []);
  pass(1);
  t.match(violations, [/^freeze: ksvm-0-0 keeps that of widgets.sim.example.com, and does not get on$/]);
  t.end();
});

/** What is said of a freeze that stays for 20 minutes, while requests of one process fail, and one has the Lease. */
function violationsOfKept({ holder, failing }: { holder?: string; failing: string }): readonly string[] {
  const { fail, pass, send, take, violations } = checked();
  send();
  pass(20, () => {
    if (holder !== undefined) take(holder);
    fail(failing);
  });
  return violations;
}

await tap.test(
  "a freeze that the next leader cannot take off either is not held against the run that put it on",
  (t) => {
    t.same(violationsOfKept({ holder: NEXT_LEADER, failing: NEXT_LEADER }), []);
    t.match(
      violationsOfKept({ failing: NEXT_LEADER }),
      [/does not get on/],
      "one that does not have the Lease has nothing to take off",
    );
    t.match(
      violationsOfKept({ holder: NEXT_LEADER, failing: "ksvm-2-0" }),
      [/does not get on/],
      "requests of others say nothing",
    );
    t.end();
  },
);

await tap.test("the time of a controller begins with its first write of an object", (t) => {
  const { pass, send, violations } = checked();
  pass(2);
  send();
  pass(7);
  t.same(violations, []);
  pass(1);
  t.match(violations, [/does not get on/]);
  t.end();
});

await tap.test("what others write that is done already, or is of another CRD, is nothing that it gets on by", (t) => {
  const { object, pass, send, violations } = checked();
  send();
  pass(9, (minute) => {
    object("user", 30 + minute);
    object("user", 30);
    object("user", minute, OTHER);
  });
  t.match(violations, [/does not get on/]);
  t.end();
});

await tap.test("an object that others write, and that it has to write, it gets done by that", (t) => {
  const { object, pass, send, violations } = checked();
  pass(2, () => object("user", 0));
  send();
  pass(18, (minute) => object("user", minute));
  t.same(violations, []);
  t.end();
});

/** What is said of a storage change while an API server ends. */
function violationsAtTheEnd(isSeen: boolean): readonly string[] {
  const { crd, leaving, send, violations } = checked();
  send();
  leaving.push({ isLeavingUnseen: (by: string) => by === CONTROLLER && !isSeen } as ApiServerNode);
  crd("user", { "ksvm.sigs.k8s.io/migrating": "true" }, "v1alpha1");
  return violations;
}

await tap.test(
  "an API server that had begun to end before the run began may let the storage version go: it is not asked",
  (t) => {
    t.same(violationsAtTheEnd(false), []);
    t.equal(violationsAtTheEnd(true).length, 1, "one that the run saw leave is waited for");
    t.end();
  },
);

/** What is said of a storage change that an API server had admitted at a time in minutes, while the run waits for late writes. */
function violationsOfLate(since: number, isWriting: boolean): readonly string[] {
  const { converge, crd, pass, requests, send, violations } = checked();
  pass(2);
  converge();
  if (isWriting) send();
  requests.since = since * MINUTE_MS;
  crd("user", { "ksvm.sigs.k8s.io/migrating": "true" }, "v1alpha1");
  return violations;
}

await tap.test(
  "a storage change that was admitted before the proof may come while the run waits for late writes",
  (t) => {
    t.same(violationsOfLate(1, false), []);
    t.equal(violationsOfLate(2, false).length, 1, "one that was admitted after it may not");
    t.equal(violationsOfLate(1, true).length, 1, "nor may one that comes when the run has waited");
    t.end();
  },
);

/** What is said of a storage change after a user wrote a policy of a CRD, minutes before the freeze where that is negative. */
function violationsBesidePolicy(kind: KindPlan, afterMinutes: number): readonly string[] {
  const { crd, pass, policy, send, violations } = checked();
  crd(CONTROLLER, {});
  if (afterMinutes < 0) policy("user", kind);
  pass(-afterMinutes);
  crd(CONTROLLER, { "ksvm.sigs.k8s.io/migrating": "true" });
  send();
  pass(afterMinutes);
  if (afterMinutes >= 0) policy("user", kind);
  crd("user", { "ksvm.sigs.k8s.io/migrating": "true" }, "v1alpha1");
  return violations;
}

await tap.test("others may let the storage version go who write the policy that guards it", (t) => {
  t.same(violationsBesidePolicy(KIND, 1), []);
  t.equal(violationsBesidePolicy(OTHER, 1).length, 1, "that of another CRD guards nothing of this one");
  t.equal(violationsBesidePolicy(KIND, -2).length, 1, "each API server has followed since, and was asked");
  t.end();
});

await tap.test("the storage version stays while a run rests on its freeze", (t) => {
  const { crd, send, violations } = checked();
  const frozen = { "ksvm.sigs.k8s.io/migrating": "true" };
  crd("user", frozen, "v1alpha1");
  t.same(violations, [], "it writes no object yet");
  send();
  crd("user", frozen, "v1");
  t.match(violations, [
    /^freeze: user changed the storage version of widgets\S+ from v1alpha1 to v1 while ksvm-0-0 rests/,
  ]);
  t.end();
});
