import t, { type Test } from "tap";
import { Cluster, eventually } from "../integration/cluster.ts";
import type { TestKind } from "../integration/crd-fixture.ts";
import { raceDiscovery, untilDiscoveryShows } from "../chaos/discovery-race.ts";
import type { KsvmEnd } from "../chaos/ksvm-process.ts";
import { IS_LONG } from "../chaos/random.ts";
import { Scenario, type ScenarioOptions } from "../chaos/scenario.ts";
import { holdCreates } from "../chaos/slow-creates.ts";
import { TEST_SEED } from "../seed.ts";

const seed = TEST_SEED;
// A request may be under way for as long as the API server's --request-timeout; the settle time has to match it.
const REQUEST_TIMEOUT_S = 20;
/** A migration begins while they are held, on a slow machine, too. */
const HELD_MS = 17_000;
const HELD_WRITES = 20;
const MAX_TRIES = 4;
/** How often the storage version changes again under late writes. */
const ROUNDS = IS_LONG ? 3 : 0;
/** Even, so that v1 is the storage version in the end. */
const FLIPS = 40;
/** A run follows each change to v1, or some of them. */
const FLIPS_PER_RUN = 2;
const cluster = await Cluster.start(t, { requestTimeout: `${REQUEST_TIMEOUT_S}s` });

/** Begins creates of the old version that a slow webhook holds; they end when it lets them go. */
class HeldCreates {
  readonly #cluster: Cluster;
  readonly #calls: () => number;
  #letGo: () => void = () => undefined;
  #released: Promise<void> = Promise.resolve();
  #ended: Promise<unknown> = Promise.resolve();
  #isLanded = false;

  private constructor(on: Cluster, calls: () => number) {
    this.#cluster = on;
    this.#calls = calls;
  }

  /** @param heldMs how long it holds a create that nobody lets go */
  static async install(t: Test, on: Cluster, heldMs: number): Promise<HeldCreates> {
    const letGo = (): Promise<void> => held.#released;
    const webhook = await holdCreates(t, on.api, { prefix: "late", heldMs, letGo });
    const held = new HeldCreates(on, () => webhook.calls());
    return held;
  }

  async begin(kind: TestKind, prefix: string): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    [this.#released, this.#letGo] = [promise, resolve];
    const { api } = this.#cluster;
    const before = this.#calls();
    const objects = kind.objects(HELD_WRITES, "v1alpha1", `late${prefix}-`);
    const creates = objects.map((object) => api.create(kind.resource("v1alpha1"), object).catch(() => undefined));
    this.#isLanded = false;
    this.#ended = this.#land(creates);
    await eventually(async () => this.#calls() >= before + HELD_WRITES, "creates are held");
  }

  async #land(creates: readonly Promise<unknown>[]): Promise<void> {
    await Promise.all(creates);
    this.#isLanded = true;
  }

  /** Resolves when they have landed, at the latest when the webhook lets them go by itself. */
  landed(): Promise<unknown> {
    return this.#ended;
  }

  /** Whether the webhook has let them go by itself. */
  get isLanded(): boolean {
    return this.#isLanded;
  }

  letGo(): Promise<unknown> {
    this.#letGo();
    return this.landed();
  }
}

const held = await HeldCreates.install(t, cluster, HELD_MS);

/** Creates of the old version are under way when v1 becomes the storage version, and discovery shows v1. */
async function startWithLateWrites(
  t: Test,
  on: Cluster,
  late: HeldCreates,
  more: Partial<ScenarioOptions> = {},
): Promise<Scenario> {
  const beforeStorageChange = (kind: TestKind): Promise<void> => late.begin(kind, "");
  const options = { seed, objects: 200, flags: [], beforeStorageChange, ...more };
  const scenario = await Scenario.start(t, on, "late", options);
  await untilDiscoveryShows(scenario, "v1");
  return scenario;
}

function assertSettled(t: Test, end: KsvmEnd): void {
  t.equal(end.code, 0, end.stderr);
  t.ok(
    end.lines.some(({ type }) => type === "settling"),
    "it waited until late writes must have landed",
  );
}

await t.test("F3: late writes of the old version under load do not outlive a migration that settles", async (t) => {
  const scenario = await startWithLateWrites(t, cluster, held);
  const settle = ["--unsafe-settle", `${REQUEST_TIMEOUT_S}s`];
  assertSettled(t, await scenario.startKsvm(settle).ended);
  for (let round = 0; round < ROUNDS; round++) {
    await scenario.setStorage("v1alpha1");
    await held.begin(scenario.kind, String(round));
    await scenario.setStorage("v1");
    assertSettled(t, await scenario.startKsvm(settle).ended);
  }
  await held.landed();
  await scenario.assertSoundEnd(t, ["--unsafe-settle", "1s"]);
});

/** The API server ends a create that is held for longer: where a run takes longer on a busy machine, there is another one. */
async function pruneUnderLateWrites(t: Test): Promise<Scenario> {
  for (let tries = 1; ; tries++) {
    const scenario = await startWithLateWrites(t, cluster, held, { objects: 10, load: false });
    const end = await scenario.startKsvm(["--unsafe-settle", "0"]).ended;
    t.equal(end.code, 0, end.stderr);
    t.ok(await scenario.isPruned());
    if (!held.isLanded || tries === MAX_TRIES) {
      return scenario;
    }
    await scenario.checker.stop();
  }
}

await t.test(
  "F3: negative control: without settling the checker finds the late writes in a pruned version",
  async (t) => {
    const scenario = await pruneUnderLateWrites(t);
    await held.letGo();
    const report = await scenario.checker.stop();
    t.match(report.breachesInHistory[0], { version: "v1alpha1", storedVersions: ["v1"] });
    t.ok(report.breachesInSnapshots.length > 0);
    t.match(report.breachesInSnapshots[0]?.example, /\/late/);
  },
);

if (IS_LONG) {
  await t.test(
    `F3: discovery ahead of the handler over ${FLIPS} storage changes: nothing is pruned while a value is old`,
    async (t) => {
      const scenario = await Scenario.start(t, cluster, "ahead", {
        seed,
        objects: 40,
        load: { pauseMs: 20 },
      });
      const sum = { created: 0, old: 0, flips: 0, lastOldAfterMs: 0 };
      for (let flip = 1; flip <= FLIPS; flip++) {
        const race = await raceDiscovery(scenario, flip % 2 === 0 ? "v1" : "v1alpha1", `flip${flip}-`);
        sum.created += race.created;
        sum.old += race.old;
        sum.flips += race.old > 0 ? 1 : 0;
        sum.lastOldAfterMs = Math.max(sum.lastOldAfterMs, race.lastOldAfterMs);
        if (flip % FLIPS_PER_RUN === 0) {
          const run = await cluster.migrate([scenario.kind.name]);
          t.equal(run.code, 0, run.stderr);
          t.ok(await scenario.isPruned());
        }
      }
      console.error(
        `  ${t.name}: after ${sum.flips} of ${FLIPS} changes ${sum.old} of ${sum.created} objects were stored in the ` +
          `version before, the last one sent ${sum.lastOldAfterMs.toFixed(0)} ms after discovery showed the new one`,
      );
      t.ok(sum.created > FLIPS, `${sum.created} objects were created at once`);
      await scenario.assertSoundEnd(t);
    },
  );

  await t.test("F3: the default settle time outlasts a late write under the default request timeout", async (t) => {
    const defaults = await Cluster.start(t);
    const late = await HeldCreates.install(t, defaults, 28_000);
    const scenario = await startWithLateWrites(t, defaults, late);
    assertSettled(t, await scenario.startKsvm().ended);
    await scenario.assertSoundEnd(t, ["--unsafe-settle", "1s"]);
  });
}
