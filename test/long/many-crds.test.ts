import { readFileSync } from "node:fs";
import t from "tap";
import { storedVersionsOf } from "../crd.ts";
import { hasFreezeAnnotation } from "../integration/frozen.ts";
import { CRDS, type NewObject, type Resource } from "../api-client.ts";
import { bundle } from "../../tools/build.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { installSystem } from "../integration/migrations.ts";
import { TestKind } from "../integration/crd-fixture.ts";
import { freePort, ONLY_CUSTOM, type Replica, spawnController, untilReady } from "../processes/replica.ts";
import {
  createFrozen,
  describeLoad,
  largeSchema,
  StorageChangeLoad,
  untilDenied,
} from "../integration/storage-change-load.ts";
import { IS_LONG } from "../chaos/random.ts";

/** How many CRDs there are, and how many of them are stale, or large. Half of the large ones are stale. */
const CRDS_IN_ALL = IS_LONG ? 200 : 30;
const STALE = IS_LONG ? 40 : 6;
const LARGE = IS_LONG ? 40 : 4;
const LARGE_KIB = 800;
const OBJECTS = 3;
/** 200 MB, in KiB as /proc has them. */
const RSS_LIMIT_KIB = 200_000_000 / 1_024;
const CHANGES_PER_SECOND = 4;
const PRUNED_TIMEOUT_MS = IS_LONG ? 1_800_000 : 400_000;

const cluster = await Cluster.start(t);
const { api } = cluster;
await installSystem(cluster);

interface Shape {
  readonly kind: TestKind;
  readonly isStale: boolean;
  readonly isLarge: boolean;
}

function shapes(): readonly Shape[] {
  return Array.from({ length: CRDS_IN_ALL }, (_, index) => ({
    kind: new TestKind("many"),
    isStale: index < STALE,
    isLarge: index < LARGE / 2 || (index >= STALE && index < STALE + LARGE / 2),
  }));
}

/** The request that makes the second version, v1, the storage version: small, however large the CRD is. */
const FLIP = [
  { op: "replace", path: "/spec/versions/0/storage", value: false },
  { op: "replace", path: "/spec/versions/1/storage", value: true },
];

/** A new version is served a moment after the CRD that adds it. */
async function createFirst(resource: Resource, object: NewObject): Promise<void> {
  const isCreated = (): Promise<boolean> =>
    api.create(resource, object).then(
      () => true,
      () => false,
    );
  await eventually(isCreated, `${resource.resource} can be created`, 60_000, 200);
}

async function create({ kind, isStale, isLarge }: Shape): Promise<void> {
  const storage = isStale ? "v1alpha1" : "v1";
  const specSchema = isLarge ? { specSchema: largeSchema(LARGE_KIB) } : {};
  await api.create(CRDS, kind.manifest({ storage, ...specSchema }));
  for (const object of kind.objects(OBJECTS, storage)) {
    await createFirst(kind.resource(storage), object);
  }
  if (isStale) {
    await api.patch(CRDS, kind, { type: "application/json-patch+json", body: FLIP });
  }
}

async function createAll(all: readonly Shape[]): Promise<void> {
  const queue = all.values();
  const worker = async (): Promise<void> => {
    for (const shape of queue) {
      await create(shape);
    }
  };
  await Promise.all(Array.from({ length: 8 }, worker));
}

/** The resident set of a process now, and the largest it ever was, in KiB. */
function memoryOf({ pid }: Replica): { readonly rss: number; readonly peak: number } {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const read = (field: string): number => Number(new RegExp(`^${field}:\\s+(\\d+) kB$`, "m").exec(status)?.[1]);
  return { rss: read("VmRSS"), peak: read("VmHWM") };
}

function inMib(kib: number): string {
  return `${Math.round(kib / 1_024)} MiB`;
}

/** Samples of the resident set, about three a second, until it is stopped. */
function sampleMemory(replica: Replica): () => readonly number[] {
  const samples: number[] = [];
  const timer = setInterval(() => samples.push(memoryOf(replica).rss), 333);
  t.teardown(() => clearInterval(timer));
  return () => {
    clearInterval(timer);
    return samples;
  };
}

async function prunedOf(kinds: readonly TestKind[]): Promise<number> {
  let pruned = 0;
  for (const kind of kinds) {
    const crd = await cluster.crd(kind);
    pruned += storedVersionsOf(crd).join() === "v1" && !hasFreezeAnnotation(crd) ? 1 : 0;
  }
  return pruned;
}

await t.test(`${CRDS_IN_ALL} CRDs, ${STALE} stale, ${LARGE} of ${LARGE_KIB} KiB: all are pruned`, async (t) => {
  const main = await bundle();
  const began = performance.now();
  const all = shapes();
  await createAll(all);
  const stale = all.filter(({ isStale }) => isStale).map(({ kind }) => kind);
  const frozen = [await createFrozen(cluster, "frozensmall"), await createFrozen(cluster, "frozenlarge", LARGE_KIB)];
  const startedAt = performance.now();
  const replica = await spawnController(t, cluster, { main, webhookPort: await freePort(), flags: ONLY_CUSTOM });
  const stopSampling = sampleMemory(replica);
  await untilReady(replica);
  const atStart = memoryOf(replica).rss;
  for (const kind of frozen) {
    await untilDenied(cluster, kind);
  }
  const load = StorageChangeLoad.start(t, cluster, frozen, CHANGES_PER_SECOND);

  // Those that are left, so that the test does not read large CRDs more often than it must.
  let left: readonly TestKind[] = stale;
  await eventually(
    async () => {
      const [next] = left;
      left = next !== undefined && (await prunedOf([next])) === 1 ? left.slice(1) : left;
      return left.length === 0;
    },
    `${STALE} CRDs are pruned:\n${replica.log().slice(-4_000)}`,
    PRUNED_TIMEOUT_MS,
    100,
  );
  const seconds = (performance.now() - startedAt) / 1_000;
  t.equal(await prunedOf(stale), STALE, "none was frozen again");
  for (const kind of stale) {
    t.same(await cluster.storedAs(kind), { v1: OBJECTS });
  }
  const report = await load.stop();
  const samples = stopSampling();
  const { peak } = memoryOf(replica);
  console.error(
    `  ${t.name} in ${seconds.toFixed(0)} s (made in ${((startedAt - began) / 1_000).toFixed(0)} s); RSS ${inMib(atStart)} ` +
      `when ready, ${inMib(samples.reduce((sum, one) => sum + one, 0) / samples.length)} on average, ${inMib(peak)} at ` +
      `the peak; ${describeLoad(report)}`,
  );
  t.ok(peak < RSS_LIMIT_KIB, `the largest resident set was ${inMib(peak)}`);
  t.ok(report.sent > 0);
  t.same(report.others, [], "every storage change of a frozen CRD was denied by the webhook itself");
  t.equal(report.denied, report.sent);
  replica.kill("SIGTERM");
  t.equal(await replica.ended, 0, replica.log().slice(-2_000));
});
