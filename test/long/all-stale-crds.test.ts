// `ksvm migrate --all` of a cluster with many stale CRDs, two of which are stuck in deletion.
import t from "tap";
import { storedVersionsOf } from "../crd.ts";
import { CRDS, MERGE_PATCH } from "../api-client.ts";
import { IS_LONG } from "../chaos/random.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { TestKind } from "../integration/crd-fixture.ts";

const STALE = IS_LONG ? 200 : 30;
const OBJECTS = 10;
/** The wait for late writes takes 90 s by itself. */
const FLAGS = IS_LONG ? [] : ["--unsafe-settle", "50ms"];

const cluster = await Cluster.start(t);
const { api } = cluster;
const kinds = Array.from({ length: STALE }, (_, index) => new TestKind(`stale${index}x`));

async function createAll(): Promise<void> {
  const queue = kinds.values();
  const worker = async (): Promise<void> => {
    for (const kind of queue) await cluster.createStale(kind, OBJECTS);
  };
  await Promise.all(Array.from({ length: 8 }, worker));
}

/** One of its objects has a finalizer that nobody removes. */
async function stickInDeletion(kind: TestKind): Promise<void> {
  const finalizers = { metadata: { finalizers: ["example.com/keep"] } };
  const ref = { name: "w0", namespace: "default" };
  await api.patch(kind.resource("v1"), ref, { type: MERGE_PATCH, body: finalizers });
  await api.delete(CRDS, kind);
  t.teardown(() =>
    api.patch(kind.resource("v1"), ref, { type: MERGE_PATCH, body: { metadata: { finalizers: null } } }),
  );
}

await t.test(
  `migrate --all of ${STALE} CRDs leaves out the two that are stuck in deletion, and names them`,
  async (t) => {
    await createAll();
    const [one, other, ...others] = kinds as [TestKind, TestKind, ...TestKind[]];
    for (const kind of [one, other]) await stickInDeletion(kind);
    const isTerminating = async (kind: TestKind): Promise<boolean> =>
      (await cluster.crd(kind)).status?.conditions?.some(({ type }) => type === "Terminating") === true;
    for (const kind of [one, other]) await eventually(() => isTerminating(kind), "the CRD says why it stays");

    const since = performance.now();
    const { code, stderr, stdout } = await cluster.ksvm(["migrate", "--all", ...FLAGS]);
    const seconds = (performance.now() - since) / 1_000;
    t.equal(code, 0, stderr);
    for (const { name } of [one, other]) {
      t.match(stderr, new RegExp(`^note: ${name} is left out: it is being deleted since .*; help: .*kubectl get`, "m"));
    }
    t.match(stdout, new RegExp(`^${others.length} resources: ${others.length} done$`, "m"));
    for (const kind of others) {
      t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
      t.same(await cluster.storedAs(kind), { v1: OBJECTS });
    }
    for (const kind of [one, other]) t.ok(storedVersionsOf(await cluster.crd(kind)).includes("v1alpha1"));
    console.error(`  ${STALE} CRDs in ${seconds.toFixed(0)} s`);

    t.match(await cluster.ksvm(["doctor", one.name]), { code: 4, stdout: /blocked-crd.*it is being deleted/s });
    t.match(await cluster.ksvm(["migrate", one.name]), { code: 1, stderr: /it is being deleted.*kubectl get/ });
    const plan = await cluster.ksvm(["plan", "--stale", "--crds-only"]);
    t.match(plan.stdout, new RegExp(`^${one.name} .* blocked .*it is being deleted since .*; help: `, "m"));
  },
);
