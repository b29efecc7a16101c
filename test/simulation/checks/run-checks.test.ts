import assert from "node:assert/strict";
import tap from "tap";
import { formatOwner } from "../../../src/api/owner.ts";
import { SimEtcd } from "../model/etcd.ts";
import type { ModelObject } from "../model/model-object.ts";
import { FreezesCheck } from "./freezes-check.ts";
import { LeaseHolders } from "./lease-holders.ts";
import { RunLeasesCheck } from "./run-leases-check.ts";

const CRD_KEY = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.sim.example.com";
const LEASE_KEY = "/registry/leases/kube-system/ksvm-migrate.widgets.sim.example.com";
const LEADER_KEY = "/registry/leases/kube-storage-migration/ksvm-controller";

/** An etcd that is written in the name of a process, and what a check says of it. */
function checked() {
  const etcd = new SimEtcd();
  const violations: string[] = [];
  const state = { writer: "user", now: 0 };
  const world = {
    cluster: { etcd },
    schedule: {
      get now() {
        return state.now;
      },
    },
    violate: (violation: string) => void violations.push(violation),
  };
  const writer = (): string => state.writer;
  assert.ok(new FreezesCheck(world, writer));
  assert.ok(new RunLeasesCheck(world, writer));
  const holders = new LeaseHolders(world, writer);
  const write = (by: string, key: string, fields: object): void => {
    state.writer = by;
    const found = etcd.get(key);
    etcd.put(key, { object: fields as ModelObject }, found?.modRevision ?? 0);
  };
  const crd = (by: string, annotations: object, managedFields: readonly object[] = []): void =>
    write(by, CRD_KEY, { metadata: { name: "widgets.sim.example.com", annotations, managedFields } });
  const lease = (by: string, holderIdentity: string | null, at: number): void => {
    state.now = at;
    write(by, LEASE_KEY, { metadata: {}, spec: { holderIdentity, leaseDurationSeconds: 15 } });
  };
  const lead = (by: string, at: number): void => {
    state.now = at;
    write(by, LEADER_KEY, { metadata: {}, spec: { holderIdentity: `${by}_1`, leaseDurationSeconds: 15 } });
  };
  const wait = (ms: number): void => void (state.now += ms);
  return { etcd, violations, crd, lease, lead, holders, wait };
}

const MIGRATING = "ksvm.sigs.k8s.io/migrating";
const OWNER = "ksvm.sigs.k8s.io/migration-owner";
const ownerOf = (identity: string): string =>
  formatOwner({ lease: "kube-system/ksvm-migrate.widgets.sim.example.com", identity, since: "" });

await tap.test(
  "a freeze of another client that a run takes off is found, and that of the run itself is not",
  async (t) => {
    const { violations, crd } = checked();
    crd("user", {});
    crd("ksvm-0", { [MIGRATING]: "true", [OWNER]: ownerOf("ksvm-0_1") });
    crd("ksvm-0", {});
    crd("user", { [MIGRATING]: "by-hand" });
    t.same(violations, []);
    crd("ksvm-0", {});
    t.match(violations, [
      /^freeze: ksvm-0 changed the freeze of widgets\S+ at revision \d+, which another client had put on$/,
    ]);
  },
);

await tap.test("a freeze of a run that holds its Lease is its own, and one of a dead run is swept", async (t) => {
  const { violations, crd, lease } = checked();
  const frozen = { [MIGRATING]: "true", [OWNER]: ownerOf("ksvm-0_1") };
  lease("ksvm-0", "ksvm-0_1", 0);
  crd("user", frozen);
  lease("ksvm-1", "ksvm-1_1", 15_001);
  crd("ksvm-1", {});
  t.same(violations, []);
  crd("user", frozen);
  lease("ksvm-0", "ksvm-0_1", 40_000);
  crd("ksvm-1", {});
  t.match(violations, [/a run that holds its Lease$/]);
});

await tap.test("a restore brings back the Lease of a run that may be dead", async (t) => {
  const { crd, etcd, holders, lease, violations } = checked();
  const frozen = { [MIGRATING]: "true", [OWNER]: ownerOf("ksvm-0_1") };
  lease("ksvm-0", "ksvm-0_1", 0);
  crd("ksvm-0", frozen);
  const backup = etcd.snapshot();
  lease("ksvm-1", "ksvm-1_1", 20_000);
  etcd.restore(backup);
  t.ok(holders.isTakenFrom("ksvm-1", "widgets.sim.example.com"));
  t.notOk(holders.isHeldBy("ksvm-0", "widgets.sim.example.com", 20_000));
  crd("ksvm-1", {});
  t.same(violations, []);
  crd("user", frozen);
  lease("ksvm-0", "ksvm-0_1", 21_000);
  crd("ksvm-1", {});
  t.same(violations, [], "it may believe that it holds the Lease");
  crd("user", frozen);
  lease("ksvm-0", "ksvm-0_1", 36_000);
  crd("ksvm-1", {});
  t.match(violations, [/a run that holds its Lease$/], "a program that ran before is judged");
});

await tap.test("a Lease that is written before it stood still for its duration is found", async (t) => {
  const { violations, lease } = checked();
  lease("ksvm-0", "ksvm-0_1", 0);
  lease("ksvm-0", "ksvm-0_1", 4_000);
  lease("ksvm-1", "ksvm-1_1", 19_000);
  lease("ksvm-1", null, 19_500);
  lease("ksvm-2", "ksvm-2_1", 19_600);
  t.same(violations, []);
  lease("ksvm-0", "ksvm-0_1", 30_000);
  lease("ksvm-2", "ksvm-0_1", 31_000);
  t.match(violations, [
    /^Lease: ksvm-0 wrote that of ksvm-2_1 at revision \d+, 10400 ms after it was written$/,
    /^Lease: ksvm-2 wrote that of ksvm-0_1 at revision \d+, which it does not hold$/,
  ]);
});

await tap.test("a Lease is held by who wrote it within its duration", async (t) => {
  const { holders, lease, wait } = checked();
  const isHeld = (since = 1_000): boolean => holders.isHeldBy("ksvm-0", "widgets.sim.example.com", since);
  t.notOk(isHeld());
  lease("ksvm-0", "ksvm-0_1", 1_000);
  lease("ksvm-0", "ksvm-0_1", 5_000);
  wait(14_999);
  t.ok(isHeld());
  t.notOk(isHeld(999), "it did not hold it by then");
  wait(1);
  t.notOk(isHeld(), "it stood still for its duration");
  t.notOk(holders.isTakenFrom("ksvm-0", "widgets.sim.example.com"));
  lease("ksvm-1", "ksvm-1_1", 21_000);
  t.notOk(isHeld());
  t.ok(holders.isTakenFrom("ksvm-0", "widgets.sim.example.com"));
  lease("user", "ksvm-1_1", 22_000);
  t.notOk(holders.isHeldBy("ksvm-1", "widgets.sim.example.com", 23_000), "others say so");
  lease("ksvm-1", "ksvm-1_1", 23_000);
  t.ok(holders.isHeldBy("ksvm-1", "widgets.sim.example.com", 23_000), "it has renewed it since");
});

await tap.test("runs of a leader end with its Lease, and with that of the leader", async (t) => {
  const { violations, lead, lease } = checked();
  lead("ksvm-0", 0);
  lease("ksvm-0", "ksvm-0_1/uid/1", 1_000);
  lease("ksvm-0", "ksvm-0_1/uid/1", 14_500);
  lead("ksvm-1", 15_000);
  lease("ksvm-1", "ksvm-1_1/uid/2", 15_001);
  t.same(violations, []);
  lead("ksvm-2", 20_000);
  lease("ksvm-2", "ksvm-2_1/uid/3", 20_001);
  t.match(violations, [
    /^Lease: ksvm-2 wrote that of ksvm-1_1 at revision \d+, 5000 ms after it was written$/,
    /^Lease: ksvm-2 wrote that of ksvm-1_1\/uid\/2 at revision \d+, 5000 ms after it was written$/,
  ]);
});

await tap.test("one that was replaced, and leads again, keeps its runs", (t) => {
  const { violations, lead, lease } = checked();
  lead("ksvm-0", 0);
  lead("ksvm-1", 15_000);
  lead("ksvm-0", 30_000);
  lease("ksvm-0", "ksvm-0_1/uid/1", 31_000);
  lease("ksvm-1", "ksvm-1_1/uid/2", 32_000);
  t.match(violations, [/^Lease: ksvm-1 wrote that of ksvm-0_1\/uid\/1 at revision \d+, 1000 ms after it was written$/]);
  t.end();
});
