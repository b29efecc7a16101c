// What a run meets in bad hours: it is killed at any step, another run works on the same CRD, and a Lease is lost.
import t from "tap";
import { MIGRATING } from "../../src/freeze/rule.ts";
import { BINDINGS, CRDS, LEASES, POLICIES } from "../../src/kube/objects.ts";
import { migrateCrds } from "../../src/migrator/migrate-crd.ts";
import type { MigrationEvent } from "../../src/migrator/types.ts";
import { KsvmProcess } from "../chaos/ksvm-process.ts";
import { TestKind } from "../integration/crd-fixture.ts";
import { loseAnswers } from "../integration/lossy-proxy.ts";
import { parallel } from "../integration/parallel.ts";
import { Cluster, eventually, signal } from "./cluster.ts";

// Most of the tests wait for the Lease of a run that is dead.
t.jobs = 6;
const cluster = await Cluster.start(t);
const { client } = cluster;

/** S1: the version of each object in etcd is listed in storedVersions. */
async function isListed(kind: TestKind): Promise<boolean> {
  const stored = Object.keys(await cluster.storedAs(kind));
  const { status } = await cluster.crd(kind);
  return stored.every((version) => status?.storedVersions?.includes(version));
}

// What a run sends, as `METHOD path?query body`.
const TRY = /^PATCH \/apis\/example\.com\/\S*dryRun=All/;
const READ_CRD = /^GET \S*\/customresourcedefinitions\/[^/\s]+ $/;
const FIND_SERVERS = /^GET \S*\/leases\?\S*kube-apiserver/;
const ASK_SERVER = /^GET \S*\/customresourcedefinitions\?\S*resourceVersion=0/;
const FREEZE = /^PATCH .*"ksvm\.sigs\.k8s\.io\/migrating":"true"/;
const PROVE = /^PATCH \S*\/customresourcedefinitions\/\S*dryRun=All/;
const LIST = /^GET \/apis\/example\.com\/\S*limit=/;
const WRITE = /^PATCH \/apis\/example\.com\/(?!\S*dryRun=)/;
const CHECKPOINT = /^PATCH \S*\/leases\/.*continueToken/;
const PRUNE = /^PATCH \S*\/customresourcedefinitions\/[^/\s]+\/status/;
const UNFREEZE = /^PATCH .*"ksvm\.sigs\.k8s\.io\/migrating":null/;

/** The twelve steps of a run. Each is told by a request: the first of its kind that follows so many of another kind. */
const STEPS: readonly (readonly [step: string, request: RegExp, after?: RegExp, times?: number])[] = [
  ["while it tries one write", TRY],
  ["while it reads the epoch", READ_CRD, TRY, 1],
  ["while API servers converge", ASK_SERVER, FIND_SERVERS, 1],
  ["while it settles", ASK_SERVER, FIND_SERVERS, 2],
  ["while it freezes the CRD", FREEZE],
  ["while it proves the guard", PROVE],
  ["at the watermark", LIST, FREEZE, 1],
  ["at the thirtieth of sixty objects", WRITE, WRITE, 29],
  ["while it keeps a checkpoint", CHECKPOINT],
  ["while it asks once more", ASK_SERVER, WRITE, 60],
  ["while it prunes", PRUNE],
  ["while it unfreezes the CRD", UNFREEZE],
];

for (const [step, request, after, times = 0] of STEPS) {
  parallel(`a run that is killed ${step} breaks nothing, and the next one ends it`, async (t) => {
    const kind = new TestKind("killed");
    await cluster.createStale(kind, 60);
    // The API server carries the request out, and the run is killed before it knows.
    const reached = Promise.withResolvers<void>();
    const sent: string[] = [];
    const loses = (one: string): boolean => {
      const isReached = request.test(one) && sent.filter((earlier) => after?.test(earlier)).length >= times;
      sent.push(one);
      if (isReached) reached.resolve();
      return isReached;
    };
    const kubeconfig = await loseAnswers(t, cluster.controlPlane, loses);
    // The checkpoint is written every five seconds. So slow, the writes of each page take longer than that.
    const slow = request === CHECKPOINT ? ["--max-qps", "3"] : [];
    const run = new KsvmProcess(t, kubeconfig, [kind.name, "--unsafe-settle", "1ms", ...slow]);
    await Promise.race([reached.promise, run.ended]);
    const { code, stderr } = await run.kill();
    t.equal(code, null, "it was killed", { stderr });
    t.ok(await isListed(kind));

    const { error, events, result } = await cluster.migrate(kind, { settleMs: 1 });
    t.equal(error, undefined);
    t.match(result?.outcome, /migrated|nothing-to-do/);
    if (request === CHECKPOINT) t.ok(events.some(({ type }) => type === "resumed"));
    t.same(await cluster.storedAs(kind), { v1: 60 });
    t.same((await cluster.crd(kind)).status?.storedVersions, ["v1"]);
    await cluster.assertNoTraces(t, kind);
  });
}

parallel("a second run at the same time is refused, and the first one ends", async (t) => {
  const kind = new TestKind("twice");
  await cluster.createStale(kind, 200);
  let isFrozen = false;
  const first = cluster.migrate(kind, {
    maxQps: 5,
    onEvent: ({ type }) => {
      isFrozen ||= type === "frozen";
    },
  });
  await eventually(async () => isFrozen, "the first one has frozen the CRD");
  const second = await cluster.migrate(kind);
  t.match(second.error, { code: "AlreadyMigrating" });
  t.match((await first).result, { outcome: "migrated" });
  t.same(await cluster.storedAs(kind), { v1: 200 });
});

parallel("a run whose Lease another one holds ends, and leaves that one's freeze alone", async (t) => {
  const kind = new TestKind("stolen");
  await cluster.createStale(kind, 200);
  const steal = async (): Promise<void> => {
    const body = { spec: { holderIdentity: "thief", renewTime: new Date().toISOString().replace("Z", "000Z") } };
    await client.patch(`${LEASES}/kube-system/leases/ksvm-migrate.${kind.name}`, body, { signal });
    const owner = { lease: `kube-system/ksvm-migrate.${kind.name}`, identity: "thief", since: "now" };
    const annotations = { "ksvm.sigs.k8s.io/migration-owner": JSON.stringify(owner) };
    await client.patch(`${CRDS}/${kind.name}`, { metadata: { annotations } }, { signal });
  };
  let stolen: Promise<void> | undefined;
  const { error } = await cluster.migrate(kind, {
    maxQps: 10,
    onEvent: ({ type }) => {
      if (type === "frozen") stolen = steal();
    },
  });
  await stolen;
  t.match(error, { code: "OwnershipLost" });
  const crd = await cluster.crd(kind);
  t.match(crd.metadata.annotations, { [MIGRATING]: "true" });
  t.same(crd.status?.storedVersions, ["v1alpha1", "v1"]);
});

/** Runs a migration, and interrupts it once its first page is written. */
async function interrupted(kind: TestKind): Promise<void> {
  const abort = new AbortController();
  const { error } = await cluster.migrate(kind, {
    maxQps: 50,
    signal: abort.signal,
    onEvent: (event) => {
      if (event.type === "progress" && event.continueToken !== undefined) abort.abort(new Error("interrupted"));
    },
  });
  if (error?.message !== "interrupted") throw new Error("the run was not interrupted", { cause: error });
}

parallel("an interrupted run goes on where it was", async (t) => {
  const kind = new TestKind("resumed");
  await cluster.createStale(kind, 120);
  await interrupted(kind);
  const second = await cluster.migrate(kind);
  t.equal(second.error, undefined);
  t.ok(second.events.some(({ type }) => type === "resumed"));
  t.match(second.result, { outcome: "migrated" });
  t.ok((second.result?.tally?.rewritten ?? 0) <= 100, "the first page is not listed again");
  t.same(await cluster.storedAs(kind), { v1: 120 });
  await cluster.assertNoTraces(t, kind);
});

parallel("a run that waits for longer takes nothing over from one that waited for less", async (t) => {
  const kind = new TestKind("longer");
  await cluster.createStale(kind, 60);
  await interrupted(kind);
  const { events, result } = await cluster.migrate(kind, { settleMs: 100 });
  t.notOk(events.some(({ type }) => type === "resumed"));
  t.match(result, { outcome: "migrated", tally: { total: 60 } });
  t.same(await cluster.storedAs(kind), { v1: 60 });
});

parallel("a CRD that another client prunes while a run is half done is migrated to its end", async (t) => {
  const kind = new TestKind("half");
  await cluster.createStale(kind, 60);
  await interrupted(kind);
  await client.patch(`${CRDS}/${kind.name}/status`, { status: { storedVersions: ["v1"] } }, { signal });
  t.match((await cluster.migrate(kind)).result, { outcome: "migrated" });
  t.same(await cluster.storedAs(kind), { v1: 60 });
  await cluster.assertNoTraces(t, kind);
  t.match((await cluster.migrate(kind)).result, { outcome: "nothing-to-do" });
});

parallel("a CRD whose managedFields another client emptied is unfrozen like any other", async (t) => {
  const kind = new TestKind("emptied");
  await cluster.createStale(kind, 3);
  await client.patch(`${CRDS}/${kind.name}`, { metadata: { managedFields: [{}] } }, { signal });
  t.match((await cluster.migrate(kind)).result, { outcome: "migrated" });
  t.same(await cluster.storedAs(kind), { v1: 3 });
  await cluster.assertUnfrozen(t, kind);
});

parallel("a freeze that cannot be lifted ends the run with its result, and without its Lease", async (t) => {
  const kind = new TestKind("stuck");
  await cluster.createStale(kind, 3);
  const has = (object: string, map: string, key: string): string =>
    `(has(${object}.metadata.${map}) && "${key}" in ${object}.metadata.${map})`;
  const isFrozen = (object: string): string => has(object, "annotations", MIGRATING);
  const isProbe = has("object", "labels", "probe");
  const name = `keep.${kind.name}`;
  const rule = {
    apiGroups: ["apiextensions.k8s.io"],
    apiVersions: ["v1"],
    operations: ["UPDATE"],
    resources: ["customresourcedefinitions"],
    resourceNames: [kind.name],
  };
  const policy = {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: "ValidatingAdmissionPolicy",
    metadata: { name },
    spec: {
      matchConstraints: { resourceRules: [rule] },
      validations: [
        {
          expression: `!${isProbe} && (!${isFrozen("oldObject")} || ${isFrozen("object")})`,
          message: "it stays frozen",
        },
      ],
    },
  };
  const spec = { policyName: name, validationActions: ["Deny"] };
  const binding = { ...policy, kind: "ValidatingAdmissionPolicyBinding", spec };
  await client.create(POLICIES, policy, { signal });
  await client.create(BINDINGS, binding, { signal });
  const probe = (): Promise<boolean> =>
    client.patch(`${CRDS}/${kind.name}`, { metadata: { labels: { probe: "yes" } } }, { dryRun: true, signal }).then(
      () => false,
      () => true,
    );
  await eventually(probe, "the policy is in force");

  const { error, events } = await cluster.migrate(kind);
  t.match(error, {
    code: "CleanupFailed",
    message: /it stays frozen.*, then kubectl delete validating/,
    result: { outcome: "migrated" },
  });
  t.ok(events.some(({ type }) => type === "warning"));
  t.equal(await client.find(`${LEASES}/kube-system/leases/ksvm-migrate.${kind.name}`, { signal }), undefined);
  t.match((await cluster.crd(kind)).metadata.annotations, { [MIGRATING]: "true" });

  await client.delete(`${BINDINGS}/${name}`, { signal });
  await client.delete(`${POLICIES}/${name}`, { signal });
  const lifted = async (): Promise<boolean> => {
    await cluster.migrate(kind).catch(() => undefined);
    return (await cluster.crd(kind)).metadata.annotations?.[MIGRATING] === undefined;
  };
  await eventually(lifted, "the next run lifts it");
  await cluster.assertNoTraces(t, kind);
});

parallel("several CRDs share one wait, and one that fails holds up none", async (t) => {
  const [one, two, three] = ["many", "many", "many"].map((word) => new TestKind(word)) as [
    TestKind,
    TestKind,
    TestKind,
  ];
  for (const kind of [one, three]) await cluster.createStale(kind, 5);
  await cluster.createCrd(two, { storage: "v1" });
  const events: [string, MigrationEvent][] = [];
  const names = [one.name, two.name, "missing.example.com", three.name];
  const ends = await migrateCrds(client, names, {
    identity: "several",
    settleMs: 3_000,
    signal,
    onEvent: (event, name) => events.push([name, event]),
  });
  t.match(ends, [
    { name: one.name, result: { outcome: "migrated" } },
    { name: two.name, result: { outcome: "nothing-to-do" } },
    { name: "missing.example.com", error: { code: "ResourceNotFound" } },
    { name: three.name, result: { outcome: "migrated" } },
  ]);
  const order = events.filter(([, { type }]) => type === "settled" || type === "frozen" || type === "unfrozen");
  const types = order.map(([, { type }]) => type);
  t.same(types.slice(0, 2), ["settled", "settled"], "one wait, and nothing is frozen before it is over");
  for (const { name } of [one, three]) {
    const own = order.filter(([of]) => of === name).map(([, { type }]) => type);
    t.same(own, ["settled", "frozen", "unfrozen"]);
  }
});

parallel("objects with 200 KB of annotations are listed in small pages", async (t) => {
  const kind = new TestKind("large");
  await cluster.createCrd(kind, { storage: "v1alpha1" });
  const text = "x".repeat(200_000);
  const objects = kind.objects(120, "v1alpha1").map((object) => ({
    ...object,
    metadata: { ...object.metadata, annotations: { text } },
  }));
  await cluster.createObjects(kind, objects, "v1alpha1");
  await cluster.setVersions(kind, { storage: "v1" });
  const { result } = await cluster.migrate(kind);
  t.match(result, { outcome: "migrated", tally: { rewritten: 120 } });
});
