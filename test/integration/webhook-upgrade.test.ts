import { readFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { parseAllDocuments } from "yaml";
import { ASKED_BY_ANNOTATION, GENERATION_ANNOTATION, WEBHOOK_NAME } from "../../src/api/names.ts";
import { systemClock } from "../../src/clock.ts";
import { MERGE_PATCH, POLICIES, POLICY_BINDINGS, WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import { generationOf } from "../../src/webhook/generation.ts";
import type { WantedObject } from "../../src/webhook/object-writer.ts";
import { WARN_POLICY_NAME, warnPolicy } from "../../src/webhook/warn-policy.ts";
import { webhookConfigurationOf } from "../../src/webhook/webhook-configuration.ts";
import { issueServing } from "../webhook/issue-serving.ts";
import { Cluster, eventually } from "./cluster.ts";
import { startEarlierKeeper } from "./earlier-keeper.ts";
import { kubectlOf } from "./kubectl.ts";
import {
  flipsIn,
  KEPT,
  type Kept,
  type Shipped,
  shippedBy,
  startVersion,
  statesFromNow,
  type VersionedKeeper,
  wordOf,
} from "./versioned-keepers.ts";

/** How long a fight is watched. The issue saw 51 writes in 5 s. */
const FIGHT_MS = 10_000;
/** Restorations of one keeper in that time: ten at once, and then after 0.1, 0.2, 0.4, … s. */
const MOST_RESTORATIONS = 17;
const FIXTURES = "test/integration/fixtures";
const EARLIER_BASE = `${FIXTURES}/base-before-generations.yaml`;
/** What the Service of the installation is called by. */
const SHIPPED = webhookConfigurationOf({
  clientConfig: {
    service: { namespace: "kube-storage-migration", name: "ksvm-webhook", path: "/validate", port: 443 },
  },
});

const cluster = await Cluster.start(t);
const { api } = cluster;
const kubectl = await kubectlOf(cluster);
const [CONFIGURATION, POLICY] = KEPT as [(typeof KEPT)[number], (typeof KEPT)[number]];

function live([resource, name]: (typeof KEPT)[number]): Promise<Kept> {
  return api.get<Kept>(resource, { name });
}

async function isOf(word: number, generation: number): Promise<boolean> {
  const objects = await Promise.all(KEPT.map(live)).catch(() => []);
  return objects.length === 2 && objects.every((one) => wordOf(one) === word && generationOf(one) === generation);
}

function change([resource, name]: (typeof KEPT)[number], body: object): Promise<unknown> {
  return api.patch(resource, { name }, { type: MERGE_PATCH, body }, { fieldManager: "other" });
}

async function publishedBundle(): Promise<string | undefined> {
  return (await live(CONFIGURATION)).webhooks?.[0]?.clientConfig.caBundle;
}

function hasLeft({ lines }: VersionedKeeper): boolean {
  return lines.filter(({ msg }) => msg === "Left an object to a newer version of ksvm").length === 3;
}

/** As kubectl apply --server-side without another flag. */
function applyManifestsOf({ configuration, policy }: Shipped) {
  const items = [configuration, policy.policy, policy.binding];
  return kubectl(["apply", "--server-side", "-f", "-"], { apiVersion: "v1", kind: "List", items });
}

function apply(flags: readonly string[], ...what: readonly string[]) {
  return kubectl(["apply", "--server-side", ...flags, ...what]);
}

function stamp(value: string): object {
  return { metadata: { annotations: { [GENERATION_ANNOTATION]: value } } };
}

/** A watch tells of a change some time after a read shows it. */
function untilShown(watched: readonly { readonly states: readonly Kept[] }[], word: number): Promise<void> {
  const isShown = async (): Promise<boolean> =>
    watched.every(({ states }) => states.some((one) => wordOf(one) === word));
  return eventually(isShown, "each watch shows the rules");
}

async function isEmpty(): Promise<boolean> {
  return ((await live(CONFIGURATION)).webhooks ?? []).length === 0;
}

function cleanUp(t: Test): void {
  t.teardown(async () => {
    await api.delete(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME });
    for (const resource of [POLICIES, POLICY_BINDINGS]) await api.delete(resource, { name: WARN_POLICY_NAME });
  });
}

function documentsIn(file: string): readonly WantedObject[] {
  const text = readFileSync(join(import.meta.dirname, "fixtures", file), "utf8");
  return parseAllDocuments(text).map((document) => document.toJS() as WantedObject);
}

await t.test("two older keepers leave the rules to a newer one, and say so once", async (t) => {
  cleanUp(t);
  const older = [startVersion(t, api, shippedBy(1, 5)), startVersion(t, api, shippedBy(1, 5))];
  await eventually(() => isOf(5, 1), "the older ones keep their rules");
  const watched = await Promise.all(KEPT.map((kept) => statesFromNow(api, kept)));
  startVersion(t, api, shippedBy(2, 7));
  await eventually(() => isOf(7, 2), "the rules are those of the newer one");
  await systemClock.sleep(FIGHT_MS);
  for (const states of await Promise.all(watched.map(({ end }) => end()))) {
    t.same(states.map(wordOf), [7], "one write, and the rules stay as they are");
  }
  t.ok(await isOf(7, 2));
  for (const { lines } of older) {
    const said = lines.filter(({ msg }) => msg === "Left an object to a newer version of ksvm");
    t.equal(said.length, 3, "once for each object");
  }
});

await t.test("negative control: without a stamp keepers of two versions undo each other's rules", async (t) => {
  cleanUp(t);
  for (const word of [5, 5, 7]) startVersion(t, api, shippedBy(undefined, word));
  await eventually(async () => (await api.find(POLICIES, { name: WARN_POLICY_NAME })) !== undefined, "they keep it");
  const watched = await Promise.all(KEPT.map((kept) => statesFromNow(api, kept)));
  await systemClock.sleep(FIGHT_MS);
  for (const states of await Promise.all(watched.map(({ end }) => end()))) {
    t.ok(flipsIn(states) >= 6, `${flipsIn(states)} times other rules in ${FIGHT_MS / 1_000} s`);
  }
});

await t.test("manifests of a newer version are applied over running older replicas, and stay", async (t) => {
  cleanUp(t);
  t.match(await applyManifestsOf(shippedBy(1, 5)), { code: 0 });
  const { caBundle } = await issueServing();
  const older = [startVersion(t, api, shippedBy(1, 5, caBundle)), startVersion(t, api, shippedBy(1, 5, caBundle))];
  await eventually(async () => (await publishedBundle()) === caBundle, "the caBundle is published");
  const watched = await Promise.all(KEPT.map((kept) => statesFromNow(api, kept)));
  const upgrade = await applyManifestsOf(shippedBy(2, 7));
  t.equal(upgrade.code, 0, `replicas own nothing that they did not restore: ${upgrade.stderr}`);
  await eventually(async () => older.every(hasLeft), "the older ones leave all three");
  await untilShown(watched, 7);
  for (const states of await Promise.all(watched.map(({ end }) => end()))) {
    t.same(states.map(wordOf), [7], "one write, that of kubectl");
  }
  t.equal(await publishedBundle(), caBundle);
});

await t.test("when the newer keeper has ended the older one takes the rules back, and asks before", async (t) => {
  cleanUp(t);
  const deference = { askAfterMs: 1_000, maxAskAfterMs: 4_000, answerMs: 3_000 };
  const newer = startVersion(t, api, shippedBy(2, 7));
  await eventually(() => isOf(7, 2), "the newer one keeps its rules");
  const older = startVersion(t, api, shippedBy(1, 5), deference);
  const watched = await Promise.all(KEPT.map((kept) => statesFromNow(api, kept)));
  const answers = (): number =>
    newer.lines.filter(({ msg }) => msg === "Told an older version of ksvm that this one runs").length;
  await eventually(async () => answers() >= 4, "it is asked, and answers");
  for (const { states } of watched) {
    t.same([...new Set(states.map(wordOf))], [7], "a question changes no rule");
    const [first] = states;
    t.equal(first?.metadata.annotations?.[ASKED_BY_ANNOTATION], "1");
  }
  await newer.end();
  await eventually(() => isOf(5, 1), "the rules are those of the one that runs");
  await untilShown(watched, 5);
  for (const states of await Promise.all(watched.map(({ end }) => end()))) t.equal(flipsIn(states), 1);
  t.notOk((await live(CONFIGURATION)).metadata.annotations?.[ASKED_BY_ANNOTATION], "nothing is asked any more");
  const taken = (): number => older.lines.filter(({ msg }) => msg?.startsWith("Took an object over")).length;
  await eventually(async () => taken() === 3, "the binding is taken over like the two others");
});

await t.test("a stamp that another client wrote does not end the keeping", async (t) => {
  cleanUp(t);
  const keeper = startVersion(t, api, shippedBy(1, 5), { askAfterMs: 1_000, answerMs: 1_000 });
  await eventually(() => isOf(5, 1), "the rules are kept");
  for (const garbage of ["", "1e9", "-3", "99999999999999999999", "two"]) {
    for (const kept of KEPT) await change(kept, stamp(garbage));
    await eventually(() => isOf(5, 1), `"${garbage}" is no generation`);
  }
  t.notOk(keeper.lines.some(({ msg }) => msg?.startsWith("Left an object")));
  const [hook] = (await live(CONFIGURATION)).webhooks ?? [];
  await change(CONFIGURATION, { ...stamp("999999999"), webhooks: [{ ...hook, matchConditions: [] }] });
  await change(POLICY, stamp("999999999"));
  await eventually(() => isOf(5, 1), "what no newer keeper answers for is taken over");
  t.same((await live(CONFIGURATION)).webhooks, [hook], "with its rules");
  t.equal(keeper.lines.filter(({ msg }) => msg?.startsWith("Took an object over")).length, 2);
});

await t.test("an older keeper leaves to a newer one nothing that cannot enforce the freeze", async (t) => {
  cleanUp(t);
  startVersion(t, api, shippedBy(1, 5), { askAfterMs: 3_600_000 });
  await eventually(() => isOf(5, 1), "the rules are kept");
  const [hook] = (await live(CONFIGURATION)).webhooks ?? [];
  const annotations = { [GENERATION_ANNOTATION]: "2" };
  for (const webhooks of [
    [],
    [{ ...hook, failurePolicy: "Ignore" }],
    [{ ...hook, objectSelector: { matchLabels: { a: "b" } } }],
  ]) {
    await change(CONFIGURATION, { metadata: { annotations }, webhooks });
    const isRight = async (): Promise<boolean> => {
      const found = await live(CONFIGURATION);
      return JSON.stringify(found.webhooks) === JSON.stringify([hook]) && generationOf(found) === 1;
    };
    await eventually(isRight, `restored: ${JSON.stringify(webhooks).slice(0, 80)}`);
  }
});

await t.test("an older keeper goes on publishing the caBundle, and changes nothing else", async (t) => {
  cleanUp(t);
  const [before, after] = [(await issueServing()).caBundle, (await issueServing()).caBundle];
  const newer = startVersion(t, api, shippedBy(2, 7, before));
  await eventually(() => isOf(7, 2), "the newer one keeps its rules");
  await newer.end();
  startVersion(t, api, shippedBy(1, 5, after), { askAfterMs: 3_600_000 });
  await eventually(async () => (await publishedBundle()) === after, "the new caBundle is there");
  t.ok(await isOf(7, 2));
  const managers = (await live(CONFIGURATION)).metadata.managedFields ?? [];
  const owners = managers.filter(({ fieldsV1 }) => JSON.stringify(fieldsV1).includes('"f:caBundle"'));
  t.same(
    owners.map(({ manager }) => manager),
    ["ksvm-certs"],
  );
});

await t.test("a fight with another client is answered promptly at first, and less and less often", async (t) => {
  cleanUp(t);
  const keeper = startVersion(t, api, shippedBy(1, 5));
  await eventually(() => isOf(5, 1), "the rules are kept");
  const stop = new AbortController();
  let emptied = 0;
  const emptying = (async () => {
    while (!stop.signal.aborted) {
      if (!(await isEmpty())) {
        await change(CONFIGURATION, { webhooks: [] });
        emptied++;
      }
      await systemClock.sleep(20);
    }
  })();
  const isRestored = (): number =>
    keeper.lines.filter(({ msg, resource }) => msg === "Restored object" && resource?.startsWith("validatingwebhook"))
      .length;
  const begun = isRestored();
  await eventually(async () => isRestored() - begun >= 8, "the first restorations do not wait");
  await systemClock.sleep(FIGHT_MS);
  stop.abort();
  await emptying;
  const restored = isRestored() - begun;
  t.comment(`emptied ${emptied} times, restored ${restored} times in about ${FIGHT_MS / 1_000} s`);
  t.ok(restored <= MOST_RESTORATIONS, `${restored} times`);
  t.equal(keeper.lines.filter(({ msg }) => msg?.startsWith("Another client keeps changing")).length, 1, "said once");
  await eventually(() => isOf(5, 1), "it is restored once the other client has ended");
});

await t.test("an upgrade from earlier manifests, which stamped nothing, and back", async (t) => {
  cleanUp(t);
  t.match(await apply([], "-f", EARLIER_BASE), { code: 0 });
  const [policy, binding] = documentsIn("warning-before-generations.yaml") as [WantedObject, WantedObject];
  const found = documentsIn("base-before-generations.yaml").find(
    ({ kind }) => kind === "ValidatingWebhookConfiguration",
  );
  const configuration = found as WantedObject;
  const startEarlier = () =>
    [
      startEarlierKeeper(t, api, [WEBHOOK_CONFIGURATIONS, configuration]),
      startEarlierKeeper(t, api, [POLICIES, policy]),
      startEarlierKeeper(t, api, [POLICY_BINDINGS, binding]),
    ] as const;
  const warning = async (): Promise<unknown> => (await api.find<Kept>(POLICIES, { name: WARN_POLICY_NAME }))?.spec;
  const isWarning = async (wanted: object): Promise<boolean> =>
    JSON.stringify(await warning()) === JSON.stringify(wanted);
  const first = startEarlier();
  await eventually(async () => (await warning()) !== undefined, "the earlier version keeps its policy");
  const earlierSpec = (await warning()) as object;

  const refused = await apply([], "-k", "deploy/base");
  t.equal(refused.code, 1, "what a replica wrote is not taken from it without being told");
  t.match(refused.stderr, /conflict with "ksvm-webhook-configuration"/);
  const forced = await apply(["--force-conflicts"], "-k", "deploy/base");
  t.equal(forced.code, 0, forced.stderr);

  const watched = await Promise.all(KEPT.map((kept) => statesFromNow(api, kept)));
  const shipped = { configuration: SHIPPED, policy: warnPolicy() };
  const newer = startVersion(t, api, shipped);
  await systemClock.sleep(FIGHT_MS);
  // The earlier code knows of no stamp: where rules differ, what a rollout costs is bounded by the newer one.
  const writes = await Promise.all(watched.map(({ end }) => end()));
  const most = 2 * MOST_RESTORATIONS + 2;
  for (const states of writes) t.ok(states.length <= most, `${states.length} writes in ${FIGHT_MS / 1_000} s`);
  for (const end of first) await end();
  const isNewest = async (): Promise<boolean> =>
    generationOf(await live(POLICY)) === 1 && !(await isWarning(earlierSpec));
  await eventually(isNewest, "the rule is that of the newest that runs");
  const after = await Promise.all(KEPT.map((kept) => statesFromNow(api, kept)));
  const flat = await apply([], "-k", "deploy/base");
  t.comment(`a second apply ends with ${flat.code}`);
  await systemClock.sleep(3_000);
  for (const states of await Promise.all(after.map(({ end }) => end())))
    t.ok(states.length <= 1, "nothing is fought over");

  const back = await apply(["--force-conflicts"], "-f", EARLIER_BASE);
  t.equal(back.code, 0, back.stderr);
  await newer.end();
  startEarlier();
  await eventually(() => isWarning(earlierSpec), "the rule is that of the version that runs");
  const last = await Promise.all(KEPT.map((kept) => statesFromNow(api, kept)));
  await systemClock.sleep(3_000);
  for (const states of await Promise.all(last.map(({ end }) => end()))) t.same(states, [], "and it stays");
});
