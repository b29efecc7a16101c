import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import type { StoredObject } from "../control-plane/stored-value.ts";
import { LEASES } from "../api-client.ts";
import type { Lease } from "../lease.ts";
import { CHECKPOINT, leaseName } from "../../src/migrator/run-lease.ts";
import { encryptionConfig, storedWith } from "../control-plane/encryption.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { TestKind } from "../integration/crd-fixture.ts";
import { rejectUpdatesOf } from "../integration/reject-updates.ts";
import { KeyChecker } from "./key-checker.ts";
import { KsvmProcess, resultOf } from "../chaos/ksvm-process.ts";
import { Load } from "../chaos/load.ts";
import { between, type Random, randomFrom } from "../chaos/random.ts";
import { TEST_SEED } from "../seed.ts";

const seed = TEST_SEED;
const random = randomFrom(seed);
const ROTATIONS = 6;
const OBJECTS = 300;

/** Keys in the order in which they were added. */
const keys = ["key0"];
const cluster = await Cluster.start(t, { apiservers: 2, encryptionConfig: encryptionConfig(keys) });
const { api, controlPlane } = cluster;
const urls = controlPlane.apiservers.map(({ url }) => url);
const RUN = ["--force", "--unsafe-settle", "1s"];
// The identity Leases tell of every restart, and void what a run rests on. Where API servers read a changed
// EncryptionConfiguration without a restart nothing tells: so it is here, where the Leases are not looked at.
const EACH = ["--apiserver-endpoints", urls.join(",")];
const SLOWLY = ["--max-qps", "20"];

/** Restarts the API servers one after the other, as a rotation does, with others at work. */
async function configure(inOrder: readonly string[]): Promise<void> {
  for (const index of urls.keys()) {
    await controlPlane.restartApiserver(index, { encryptionConfig: encryptionConfig(inOrder) });
    await delay(between(random, 0, 1_000));
  }
}

/** Forced runs, one after the other, each of which is killed at some moment. */
class Hinderer {
  readonly #t: Test;
  readonly #kind: TestKind;
  readonly #random: Random;
  readonly #abort = new AbortController();
  readonly #work: Promise<void>;
  kills = 0;

  constructor(hindered: Test, kind: TestKind) {
    this.#t = hindered;
    this.#kind = kind;
    this.#random = randomFrom(seed + 1);
    this.#work = this.#run();
    hindered.teardown(() => this.stop());
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    await this.#work;
  }

  async #run(): Promise<void> {
    const { signal } = this.#abort;
    while (!signal.aborted) {
      const run = new KsvmProcess(this.#t, cluster.kubeconfig, [...RUN, ...EACH, ...SLOWLY, this.#kind.name]);
      await this.#untilUnderWay(run);
      await delay(between(this.#random, 0, 1_500), undefined, { signal }).catch(() => undefined);
      this.kills += (await run.kill()).code === null ? 1 : 0;
    }
  }

  /** Waits until a run rewrites objects and there is a checkpoint that a later one could resume. */
  async #untilUnderWay(run: KsvmProcess): Promise<void> {
    const ended = new AbortController();
    void run.ended.then(() => ended.abort());
    const over = AbortSignal.any([ended.signal, this.#abort.signal]);
    while (!over.aborted && !(await hasCheckpoint(this.#kind))) await delay(50);
    while (!over.aborted && !run.lines.some(({ type }) => type === "progress")) await delay(50);
  }
}

async function hasCheckpoint({ name }: TestKind): Promise<boolean> {
  const ref = { namespace: "kube-system", name: leaseName(name) };
  const lease = await api.find<Lease>(LEASES, ref).catch(() => undefined);
  return (lease?.metadata.annotations?.[CHECKPOINT] ?? "") !== "";
}

/** What is stored, as an API server reads it, in the shape in which {@link Load} compares it. */
async function readAll(kind: TestKind): Promise<readonly StoredObject[]> {
  await cluster.waitForVersion(kind, "v1");
  const objects = await api.list<{ metadata: { name: string } }>(kind.resource("v1"));
  return objects.map((object) => ({
    name: object.metadata.name,
    apiVersion: "",
    kind: "",
    modRevision: 0,
    version: 0,
    raw: Buffer.from(JSON.stringify(object)),
  }));
}

await t.test(
  `${ROTATIONS} key rotations while forced runs are killed and others write: nothing needs an old key`,
  async (t) => {
    const kind = new TestKind("rotated");
    await cluster.createCrd(kind, { storage: "v1", statusSubresource: true });
    const initial = kind.objects(OBJECTS, "v1");
    await cluster.createObjects(kind.resource("v1"), initial);
    const checker = await KeyChecker.start(t, () => controlPlane.stored, { kind, readable: keys.map(storedWith) });
    const existing = initial.map(({ metadata }) => metadata.name ?? "");
    const load = Load.start(t, controlPlane, kind, { seed, existing, apiservers: [0, 1] });
    let kills = 0;
    for (let rotation = 1; rotation <= ROTATIONS; rotation++) {
      const [before = "", next] = [keys.at(-1), `key${rotation}`];
      keys.push(next);
      const hinderer = new Hinderer(t, kind);
      // A checkpoint that a later run could resume stands for objects with the old key.
      await eventually(() => hasCheckpoint(kind), "a run left a checkpoint", 180_000);
      // Every API server can read the new key before one of them writes with it.
      await configure([before, next]);
      await checker.setReadable([before, next].map(storedWith));
      await configure([next, before]);
      await delay(between(random, 0, 3_000));
      await hinderer.stop();
      kills += hinderer.kills;

      const run = await new KsvmProcess(t, cluster.kubeconfig, [...RUN, ...EACH, kind.name]).ended;
      t.equal(run.code, 0, `a forced run after rotation ${rotation} succeeds`, { stderr: run.stderr });
      t.ok((resultOf(run)?.counts?.migrated ?? 0) > 0, "it had something to rewrite");
      // From here on an object with the old key is lost.
      await checker.setReadable([storedWith(next)]);
      await configure([next]);
    }
    const counts = await load.stop();
    t.same(load.lossesIn(await readAll(kind)), [], "no write of others is lost, and every object can be read");
    const report = await checker.stop();
    t.same(report.breaches, [], "every object is stored with a key that every API server has, at every moment");
    t.same(Object.keys(report.counts), [storedWith(keys.at(-1) ?? "")]);
    t.ok(report.writes > 0 && report.snapshots > 0, "the checker looked");
    t.ok(kills > 0, "forced runs were killed");
    const { writes, snapshots } = report;
    console.error(
      `  ${t.name}: ${writes} writes and ${snapshots} snapshots checked, ${kills} kills; others: ${JSON.stringify(counts)}`,
    );
  },
);

await t.test("negative control: a key that is removed although a rejected object needs it is caught", async (t) => {
  const kind = new TestKind("unready");
  await cluster.createCrd(kind, { storage: "v1" });
  await cluster.createObjects(kind.resource("v1"), kind.objects(20, "v1"));
  const [before = "", next] = [keys.at(-1), "key-of-the-control"];
  const checker = await KeyChecker.start(t, () => controlPlane.stored, {
    kind,
    readable: [before, next].map(storedWith),
  });
  await configure([next, before]);
  await cluster.waitForVersion(kind, "v1");
  await rejectUpdatesOf(cluster, kind, "w7");
  const run = await new KsvmProcess(t, cluster.kubeconfig, [...RUN, ...EACH, kind.name]).ended;
  t.equal(run.code, 3, "the run says that it is incomplete");
  await checker.setReadable([storedWith(next)]);
  await configure([next]);
  const { breaches } = await checker.stop();
  t.same([...new Set(breaches.map(({ name }) => name))], ["default/w7"], "the checker names the object that is lost");
  const path = `/apis/example.com/v1/namespaces/default/${kind.plural}/w7`;
  const { status } = await controlPlane.request(path);
  t.equal(status, 500, "and the API server cannot read it");
});
