import t from "tap";
import { storedVersionsOf } from "../crd.ts";
import { MIGRATING } from "../../src/freeze/rule.ts";
import { freezeOwnerOf, hasFreezeAnnotation } from "./frozen.ts";
import { CRDS, MERGE_PATCH } from "../api-client.ts";
import { assertNoTraces, assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { parallel } from "./parallel.ts";
import { INTERRUPTED_FLAGS, SLOW_RUN_OBJECTS, untilRewriting } from "./slow-run.ts";

const cluster = await Cluster.start(t);
const SLOW_MIGRATE = ["migrate", "--unsafe-settle", "50ms", ...INTERRUPTED_FLAGS];

/** Milliseconds: it watches the Lease of the first one first, for as long as that lasts. */
const TAKEN_OVER_WITHIN_MS = 180_000;

/** How many objects a run says it rewrote. */
function rewrittenBy(stdout: string): number {
  return Number(/(\d+) rewritten/.exec(stdout)?.[1] ?? 0);
}

parallel("Ctrl-C lifts the freeze, prunes nothing, and a second run resumes", async (t) => {
  const kind = new TestKind("ctrlc");
  await cluster.createStale(kind, SLOW_RUN_OBJECTS);
  const run = cluster.spawnKsvm(t, [...SLOW_MIGRATE, kind.name]);
  await untilRewriting(cluster, kind, run);
  run.signal("SIGINT");
  const { code, stderr } = await run.ended;
  t.equal(code, 130);
  t.match(stderr, /Interrupted: run again to resume \[Interrupted\]/);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  await assertUnfrozen(t, cluster, kind);
  const left = (await cluster.storedAs(kind))["v1alpha1"] ?? 0;
  t.ok(left > 0, "there is something left to do");

  const again = await cluster.migrate([kind.name]);
  t.equal(again.code, 0, again.stderr);
  t.match(again.stdout, /resuming an earlier run/);
  t.equal(rewrittenBy(again.stdout), left, "no object is written a second time");
  t.same(await cluster.storedAs(kind), { v1: SLOW_RUN_OBJECTS });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  await assertNoTraces(t, cluster, kind);
});

parallel("a second run refuses while the first one lives", async (t) => {
  const kind = new TestKind("twice");
  await cluster.createStale(kind, SLOW_RUN_OBJECTS);
  const first = cluster.spawnKsvm(t, [...SLOW_MIGRATE, kind.name]);
  await untilRewriting(cluster, kind, first);
  const second = await cluster.migrate([kind.name]);
  t.equal(second.code, 1);
  t.match(second.stderr, /is migrating it .*\[AlreadyMigrating\]/);
  t.ok(hasFreezeAnnotation(await cluster.crd(kind)), "the first run's freeze is left alone");
  const { code, stderr } = await first.ended;
  t.equal(code, 0, stderr);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  await assertNoTraces(t, cluster, kind);
});

parallel("a freeze of another owner is left alone and reported", async (t) => {
  const kind = new TestKind("foreign");
  await cluster.createStale(kind, 3);
  const body = { metadata: { annotations: { [MIGRATING]: "by-hand" } } };
  const { api } = cluster;
  await api.patch(CRDS, kind, { type: MERGE_PATCH, body });
  const run = await cluster.migrate([kind.name]);
  t.equal(run.code, 1);
  t.match(run.stderr, /frozen by something other than ksvm.*kubectl annotate.*\[ForeignFreeze\]/);
  t.ok(hasFreezeAnnotation(await cluster.crd(kind)));
  t.same(await cluster.storedAs(kind), { v1alpha1: 3 });
  const plan = await cluster.ksvm(["plan", kind.name]);
  t.match(plan.stdout, /blocked/);
});

parallel("Two writers: a run that wakes up after another took over does nothing any more", async (t) => {
  const kind = new TestKind("asleep");
  await cluster.createStale(kind, SLOW_RUN_OBJECTS);
  const sleeper = cluster.spawnKsvm(t, [...SLOW_MIGRATE, kind.name]);
  await untilRewriting(cluster, kind, sleeper);
  sleeper.pause();
  // Slow enough to be still at work when the first one wakes up.
  const second = cluster.spawnKsvm(t, [...SLOW_MIGRATE, kind.name]);
  const ownerNow = async (): Promise<string | undefined> => freezeOwnerOf(await cluster.crd(kind))?.identity;
  const before = await ownerNow();
  const hasTakenOver = async (): Promise<boolean> => ![undefined, before].includes(await ownerNow());
  await eventually(hasTakenOver, "the second run has taken over", TAKEN_OVER_WITHIN_MS);
  const owner = await ownerNow();
  sleeper.resume();
  const late = await sleeper.ended;
  t.equal(late.code, 1);
  // The one that took over first swept the freeze of the one that it held for dead.
  t.match(late.stderr, /\[(OwnershipLost|FreezeLifted)\]/);
  t.notMatch(late.stdout, /pruned|lifted the freeze/);
  t.equal(await ownerNow(), owner, "the freeze of the second run is left alone");
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  const { code, stderr } = await second.ended;
  t.equal(code, 0, stderr);
  t.same(await cluster.storedAs(kind), { v1: SLOW_RUN_OBJECTS });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  await assertNoTraces(t, cluster, kind);
});

parallel("a run whose Lease has no namespace ends at once, with one line", async (t) => {
  const kind = new TestKind("nope");
  await cluster.createStale(kind, 1);
  const run = await cluster.migrate([kind.name, "--lease-namespace", "nope"]);
  t.equal(run.code, 1);
  t.match(run.stderr, /^error: [^\n]*namespace "nope" does not exist[^\n]*\[NotFound\]\n$/m);
  t.notOk(hasFreezeAnnotation(await cluster.crd(kind)));
});
