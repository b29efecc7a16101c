import t, { type Test } from "tap";
import { CRDS, LEASES, MERGE_PATCH } from "../../src/kube/resources.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { GROUP } from "../integration/crd-fixture.ts";
import { checkpointOf, writeAsTheRun } from "../integration/forged-checkpoint.ts";
import { ChaosProxy } from "./chaos-proxy.ts";
import { resultOf } from "./ksvm-process.ts";
import { announcedSeed, IS_LONG } from "./random.ts";
import { Scenario } from "./scenario.ts";

const seed = announcedSeed("resume-cost.test.ts");
const cluster = await Cluster.start(t, { compactionInterval: "0" });
const { api } = cluster;
const STALE = 400;
const CURRENT = 40;
const PAGE = 50;
const IN_FLIGHT = 8;
const FLAGS = ["--page-size", String(PAGE), "--max-in-flight", String(IN_FLIGHT), "--max-qps", "150"];

/** What one kind of resumption cost. */
interface Cost {
  /** Objects that the migrator had etcd write a second time. */
  readonly writtenTwice: readonly string[];
  /** Objects that were rewritten before the kill and got a request again. */
  readonly askedTwice: readonly string[];
  /** Requests on objects that were in the new version all along, before the kill and after it. */
  readonly onCurrent: readonly [number, number];
  /** What the second run itself reports of those. */
  readonly reportedCurrent: number;
}

function isCurrent(name: string): boolean {
  return name === "canary" || name.endsWith("-current");
}

/** Kills a run in the middle, does something to what it left, and lets a second run finish. */
async function costAfter(t: Test, harm: (scenario: Scenario) => Promise<void>): Promise<Cost> {
  const requests: string[] = [];
  const proxy = await ChaosProxy.start(t, cluster.controlPlane, {
    onAnswer: ({ method, path }) => {
      const name = new RegExp(`/${GROUP}/v1/namespaces/default/[^/]+/([^/?]+)`).exec(path)?.[1];
      if (method === "PATCH" && name !== undefined) requests.push(name);
    },
  });
  const scenario = await Scenario.start(t, cluster, "resumed", { seed, objects: STALE, load: false });
  const { kind } = scenario;
  // Spread over the others in the order of a list.
  const current = Array.from({ length: CURRENT }, (_, index) => `w${index * 10}-current`);
  const create = (name: string): Promise<unknown> => api.create(kind.resource("v1"), kind.object(name, "v1"));
  await eventually(async () => {
    await api.delete(kind.resource("v1"), { name: "canary", namespace: "default" }).catch(() => undefined);
    await create("canary").catch(() => undefined);
    return (await cluster.storedAs(kind))["v1"] === 1;
  }, "objects are created in the new version");
  for (const name of current) await create(name);
  const rewrittenSoFar = async (): Promise<number> => STALE - ((await cluster.storedAs(kind))["v1alpha1"] ?? 0);

  const first = scenario.startKsvm(FLAGS, proxy.kubeconfig);
  await eventually(async () => (await rewrittenSoFar()) >= STALE / 2, "half of the objects are rewritten");
  await first.kill();
  const before = await rewritten(scenario);
  const requestsBefore = requests.splice(0);
  await harm(scenario);
  await scenario.hurryLease();
  const second = await scenario.startKsvm(FLAGS, proxy.kubeconfig).ended;
  t.equal(second.code, 0, second.stderr);

  const after = await rewritten(scenario);
  const writtenTwice = [...before].filter(([name, revision]) => after.get(name) !== revision).map(([name]) => name);
  const askedTwice = requests.filter((name) => before.has(name) && !isCurrent(name));
  const onCurrent = [requestsBefore.filter(isCurrent).length, requests.filter(isCurrent).length] as const;
  const reportedCurrent = resultOf(second)?.counts?.current ?? 0;
  const { sameVersionWrites } = await scenario.assertSoundEnd(t);
  t.equal(sameVersionWrites, 0, "etcd's history shows no write of an object that was in the new version already");
  console.error(
    `  ${t.name}: ${before.size} of ${STALE + CURRENT} in the new version when killed; written twice ${writtenTwice.length}, ` +
      `asked again ${askedTwice.length}, requests on current ones ${onCurrent.join("+")} (reported: ${reportedCurrent})`,
  );
  return { writtenTwice, askedTwice, onCurrent, reportedCurrent };
}

/** The objects in the new version, each with the revision of its last write. */
async function rewritten({ kind }: Scenario): Promise<ReadonlyMap<string, number>> {
  const stored = await cluster.controlPlane.stored.storedObjects(GROUP, kind.plural);
  const isNew = stored.filter(({ apiVersion }) => apiVersion === `${GROUP}/v1`);
  return new Map(isNew.map(({ name, modRevision }) => [name, modRevision]));
}

await t.test("after kill -9 in the middle at most a page and what was in flight is asked for again", async (t) => {
  const cost = await costAfter(t, async () => {});
  t.same(cost.writtenTwice, []);
  t.ok(cost.askedTwice.length <= PAGE + IN_FLIGHT, `${cost.askedTwice.length} were asked for again`);
  t.ok(cost.onCurrent[1] <= CURRENT - cost.onCurrent[0] + PAGE + IN_FLIGHT, "current ones are not gone over again");
});

await t.test("after a continue token got lost the watermark saves every second write and request", async (t) => {
  const cost = await costAfter(t, async (scenario) => {
    const { continueToken, ...others } = await checkpointOf(cluster, scenario.kind);
    t.ok(continueToken, "there was one to lose");
    await writeAsTheRun(cluster, scenario.kind, others);
  });
  t.same(cost.writtenTwice, []);
  t.same(cost.askedTwice, []);
  t.equal(cost.reportedCurrent, cost.onCurrent[1], "requests on objects that were current all along are told apart");
});

if (IS_LONG) {
  await t.test("after a compaction made the continue token expire nothing is written twice", async (t) => {
    const cost = await costAfter(t, async () => {
      const { stored } = cluster.controlPlane;
      await stored.compact(await stored.currentRevision());
    });
    t.same(cost.writtenTwice, []);
    t.ok(cost.askedTwice.length <= PAGE + IN_FLIGHT, `${cost.askedTwice.length} were asked for again`);
  });

  await t.test(
    "after the whole checkpoint got lost every object is asked for again, and none is written twice",
    async (t) => {
      const cost = await costAfter(t, (scenario) => api.delete(LEASES, scenario.leaseRef));
      t.same(cost.writtenTwice, []);
      t.equal(cost.reportedCurrent, cost.onCurrent[1] + cost.askedTwice.length, "it reports each of those requests");
    },
  );

  await t.test("negative control: an edit of the CRD voids the watermark, and the requests show it", async (t) => {
    const cost = await costAfter(t, async ({ kind }) => {
      const crd = await cluster.crd(kind);
      const versions = (crd.spec.versions as readonly object[]).map((version) => ({ ...version, deprecated: true }));
      await api.patch(CRDS, kind, { type: MERGE_PATCH, body: { spec: { versions } } });
    });
    t.ok(cost.askedTwice.length > PAGE + IN_FLIGHT, `${cost.askedTwice.length} were asked for again`);
    t.same(cost.writtenTwice, []);
  });
}
