import t, { type Test } from "tap";
import { systemClock } from "../../src/clock.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { CRDS, MERGE_PATCH } from "../../src/kube/resources.ts";
import { noOpWrite } from "../../src/migrator/rewrite/no-op-write.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { Cluster } from "../integration/cluster.ts";
import type { TestKind } from "../integration/crd-fixture.ts";
import { objectWebhook, type Verdict } from "../integration/object-webhook.ts";
import { type KsvmEnd, resultOf } from "./ksvm-process.ts";
import { announcedSeed, IS_LONG, pick, type Random, randomFrom } from "./random.ts";
import { Scenario } from "./scenario.ts";

const seed = announcedSeed("random-denials.test.ts");
const cluster = await Cluster.start(t);
const OBJECTS = IS_LONG ? 1_000 : 300;
/** Slow, so that most objects are still old when a run begins, however slow the machine: those are what could be lost. */
const LOAD = { workers: 2, pauseMs: 250 };
/** Storage changes, each followed by runs until one of them gets through. */
const ROUNDS = IS_LONG ? 4 : 1;
/** So many runs may end with objects that were denied twice, before the webhook has to let everything through. */
const DENIED_RUNS = IS_LONG ? 4 : 2;
/** Of the updates. */
const SHARE = 0.3;

const REASONS = ["NotFound", "Conflict", "TooManyRequests", "InternalError", "Expired", ""] as const;

/** A denial such as a webhook passes on when a request of its own fails: nothing in it is about the object. */
function denial(random: Random, kind: TestKind, name: string): Verdict {
  const code = pick(random, [404, 409, 429, 500]);
  const details = pick(random, [
    undefined,
    {},
    { name, kind: kind.plural, group: "example.com" },
    { name, kind: kind.kind, uid: "0" },
    { name: "default", kind: "namespaces" },
    { name, kind: kind.plural, retryAfterSeconds: 30 },
  ]);
  const message = pick(random, [
    `${kind.name} "${name}" not found`,
    "the object has been modified; please apply your changes to the latest version and try again",
    "storage is (re)initializing",
    'failed calling webhook "other.example.com": EOF',
    "",
  ]);
  const status = { code, reason: pick(random, REASONS), message, ...(details === undefined ? {} : { details }) };
  return { allowed: false, status };
}

/** A webhook that denies a share of the updates, of ksvm and of all others, while it is told to. */
async function randomWebhook(t: Test, scenario: Scenario) {
  const random = randomFrom(seed);
  const state = { denies: true, denials: 0 };
  const decide = (name: string): Verdict => {
    if (!state.denies || random() >= SHARE) return { allowed: true };
    state.denials++;
    return denial(random, scenario.kind, name);
  };
  await objectWebhook(t, cluster, scenario.kind, { decide });
  return state;
}

/** A run either got everything through, or it pruned nothing and counts every object that is still old. */
async function assertTrue(t: Test, scenario: Scenario, end: KsvmEnd): Promise<void> {
  const counts = resultOf(end)?.counts;
  t.ok(end.code === 0 || end.code === 3, `it ended with ${end.code}`, { stderr: end.stderr, counts });
  t.equal(await scenario.isPruned(), end.code === 0, "it pruned exactly where it says so");
  const { v1alpha1 = 0 } = await cluster.storedAs(scenario.kind);
  const failed = counts?.failed ?? 0;
  // Other clients may have rewritten or deleted some of them by now, and write v1 only.
  t.ok(v1alpha1 <= failed, `${v1alpha1} objects are old, and ${failed} are counted as failed`);
}

await t.test("an admission webhook that answers 404, 409, 429 and 500 at random proves nothing", async (t) => {
  const scenario = await Scenario.start(t, cluster, "denied", { seed, objects: OBJECTS, load: LOAD });
  const webhook = await randomWebhook(t, scenario);
  const { v1alpha1 = 0 } = await cluster.storedAs(scenario.kind);
  t.ok(v1alpha1 > OBJECTS / 2, `${v1alpha1} objects are old`);
  let incomplete = 0;
  for (let round = 0; round < ROUNDS; round++) {
    if (round > 0) {
      webhook.denies = false;
      await scenario.setStorage(round % 2 === 0 ? "v1" : "v1alpha1");
      webhook.denies = true;
    }
    for (let runs = 0; runs <= DENIED_RUNS; runs++) {
      webhook.denies = runs < DENIED_RUNS;
      const end = await scenario.startKsvm().ended;
      incomplete += end.code === 3 ? 1 : 0;
      if (round % 2 === 0) await assertTrue(t, scenario, end);
      if (end.code === 0) break;
    }
  }
  webhook.denies = false;
  await scenario.setStorage("v1");
  console.error(`  ${t.name}: ${webhook.denials} denials, ${incomplete} runs ended with objects that were denied`);
  t.ok(incomplete > 0, "some objects were denied twice in a run");
  await scenario.assertSoundEnd(t);
});

await t.test("negative control: a migrator that takes a webhook's 404 for deleted is caught", async (t) => {
  const scenario = await Scenario.start(t, cluster, "gullible", { seed, objects: 60, load: false });
  const { api } = cluster;
  const { kind } = scenario;
  const resource = { ...kind.resource("v1"), kind: kind.kind };
  const status = (name: string) => ({ code: 404, reason: "NotFound", details: { name, kind: kind.plural } });
  const decide = (name: string): Verdict =>
    name === "w7" ? { allowed: false, status: status(name) } : { allowed: true };
  await objectWebhook(t, cluster, kind, { decide });
  const signal = AbortSignal.timeout(120_000);
  const retrier = new Retrier({ clock: systemClock, random: () => 0.5 });
  const { items } = await retrier.run(() => api.listMetadata(kind.resource("v1")), signal);
  const gone: string[] = [];
  for (const { metadata } of items) {
    try {
      await retrier.run(() => noOpWrite(api.transport, resource, metadata, { signal }), signal);
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 404)) throw error;
      gone.push(metadata.name);
    }
  }
  t.same(gone, ["w7"]);
  await api.patch(
    CRDS,
    kind,
    { type: MERGE_PATCH, body: { status: { storedVersions: ["v1"] } } },
    { subresource: "status" },
  );
  const { breachesInHistory, breachesInSnapshots } = await scenario.checker.stop();
  t.match(breachesInHistory[0], { version: "v1alpha1", objects: 1, storedVersions: ["v1"] });
  t.match(breachesInSnapshots[0], { version: "v1alpha1", objects: 1, storedVersions: ["v1"] });
});
