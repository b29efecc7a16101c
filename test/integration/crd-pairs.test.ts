// Pairs of a CRD in the cluster and one in a file, carried out side by side: what `ksvm check -f` says is what
// `ksvm migrate -f --apply` does, with etcd read before and after.
import { join } from "node:path";
import t from "tap";
import { AT_ONCE, eachOf } from "../../src/migrator/migrate-crd.ts";
import type { CheckEntry } from "../../src/inventory/upgrade.ts";
import { BINDINGS, CRDS, type KubeObject, LEASES, POLICIES } from "../../src/kube/objects.ts";
import { Cluster as Engine, signal } from "../engine/cluster.ts";
import { conversionIn, type More, PAIRS, planText, type Versions, versionsIn } from "../inventory/pairs.ts";
import { Cluster } from "./cluster.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";
import { applyCrd, assertArrived, manifestOf, storeObjects } from "./crd-texts.ts";
import { parallel } from "./parallel.ts";
import { serveConversion } from "./serve-webhook.ts";
import { installWebhook } from "./webhook-guard.ts";

const cluster = await Cluster.start(t);
const engine = await Engine.connect(t, cluster.controlPlane);
const { client } = engine;
const { clientConfig } = await serveConversion(t);
// The policy of each run would take a second or two to come into force. The webhook guards all CRDs at once.
const guard = await installWebhook(cluster);
t.teardown(() => guard.uninstall());

/** The CRD, with all versions served, when each of these was its storage version. */
function historyOf(text: Versions, stored: readonly string[]): readonly Versions[] {
  const versions = text.split(" ").map((one) => one.replace(/[+-]+$/, ""));
  return stored.map((storage) => versions.map((one) => (one.split(":")[0] === storage ? `${one}+` : one)).join(" "));
}

const cases = PAIRS.map(([name, live, file, expected, more = {}]) => {
  const { apiVersion, by = ["None", "None"], notes, pruner, stored }: More = more;
  const kind = new TestKind("pair");
  const [conversion, after] = [conversionIn(by[0], clientConfig), conversionIn(by[1], clientConfig)];
  const manifest = { ...manifestOf(kind, file, after), ...(apiVersion === undefined ? {} : { apiVersion }) };
  const storage = versionsIn(live ?? "").flatMap((version) => (version.storage ? [version.name] : []));
  const history = live === undefined ? [] : historyOf(live, stored?.split(" ") ?? storage);
  const isRefused = expected instanceof RegExp;
  return { kind, name, live, file, expected, notes, pruner, conversion, manifest, storage, history, isRefused };
});

// The CRDs take each turn together: the API server has observed most of them when the first object is stored.
for (const turn of [0, 1, 2]) {
  const those = cases.map(({ history, ...one }) => ({ ...one, text: history[turn] ?? "" })).filter(({ text }) => text);
  await eachOf(those, AT_ONCE, ({ conversion, kind, text }) =>
    applyCrd(engine, kind, manifestOf(kind, text, conversion)),
  );
  await eachOf(those, AT_ONCE, ({ kind, text }) => storeObjects(engine, kind, text));
}
await eachOf(cases, AT_ONCE, async ({ conversion, kind, live, pruner, storage }) => {
  if (live !== undefined) await applyCrd(engine, kind, manifestOf(kind, live, conversion));
  if (pruner === undefined) return;
  const body = { status: { storedVersions: storage } };
  await client.patch(`${CRDS}/${kind.name}/status`, body, { fieldManager: pruner, signal });
});

/** Runs work side by side, each on a folder of its own: one run takes its files one after the other. */
const RUNS = 8;
const shares = Array.from({ length: RUNS }, (_, run) => cases.filter((_one, index) => index % RUNS === run));
const files = shares.map((share) => share.map(({ kind, manifest }) => [`${kind.name}.json`, JSON.stringify(manifest)]));
const root = t.testdir(Object.fromEntries(files.map((some, run) => [`crds-${run}`, Object.fromEntries(some)])));
const folders = shares.map((_, run) => join(root, `crds-${run}`));

async function check() {
  const paths = folders.flatMap((folder) => ["-f", folder]);
  const { code, stderr, stdout } = await cluster.ksvm(["check", ...paths, "-o", "json"]);
  if (stdout === "") throw new Error(stderr);
  const { items } = JSON.parse(stdout) as { readonly items: readonly CheckEntry[] };
  return { code, entries: new Map(items.map((entry) => [entry.name, entry])) };
}

/** The keys of every CRD and its objects in etcd, each with the revision of its last write. */
async function readEtcd() {
  const prefixes = [`/registry/${GROUP}/`, "/registry/apiextensions.k8s.io/customresourcedefinitions/"];
  const reads = prefixes.map((prefix) => engine.controlPlane.stored.readPrefix(prefix, { keysOnly: true }));
  return (await Promise.all(reads)).flat();
}

const before = await readEtcd();
const checked = await check();
const untouched = await readEtcd();
const runs = await Promise.all(
  folders.map((folder) => cluster.migrate(["-f", folder, "--apply", "--log-level", "silent"])),
);
const after = await readEtcd();
const checkedAgain = await check();
const output = runs.flatMap(({ stdout }) => stdout.split("\n"));

parallel("the exit code is that of the worst, and what is refused holds up no other", async (t) => {
  t.ok(PAIRS.length >= 60);
  t.same([checked.code, checkedAgain.code], [5, 5]);
  for (const [run, { code, stderr }] of runs.entries()) {
    t.equal(code, shares[run]?.some(({ isRefused }) => isRefused) === true ? 5 : 0, stderr);
  }
});

parallel("no Lease and no policy is left", async (t) => {
  for (const path of [`${LEASES}/kube-system/leases`, POLICIES, BINDINGS]) {
    const { items } = await client.list<KubeObject>(path, { signal });
    t.same(
      items.map(({ metadata }) => metadata.name).filter((name) => name.startsWith("ksvm")),
      [],
    );
  }
});

for (const { expected, file, isRefused, kind, live, manifest, name, notes } of cases) {
  parallel(`${name}: ${live ?? "nothing"} to ${file}`, async (t) => {
    const [entry, again] = [checked.entries.get(kind.name), checkedAgain.entries.get(kind.name)];
    if (entry === undefined || again === undefined) throw new Error("check does not name it");
    if (expected instanceof RegExp) t.match(planText(entry), expected);
    else t.equal(planText(entry), expected);
    if (notes === undefined) t.notMatch(entry.notes.join("\n"), /lacks spec/);
    else t.match(entry.notes.join("\n"), notes);

    const ofKind = (entries: typeof before) => entries.filter(({ key }) => key.includes(kind.plural));
    const keys = (entries: typeof before): readonly string[] => ofKind(entries).map(({ key }) => key);
    t.same(ofKind(untouched), ofKind(before), "the check changes nothing");
    const said = output.filter((line) => line.startsWith(`${kind.name}: `));
    const steps = entry.steps.map(({ does, kind: step, why }) => `${kind.name}: ${step}: ${does}, because ${why}`);
    const told = said.filter((line) => /^\S+ (serve|flip|migrate|apply): /.test(line));
    t.same(told, steps, "the steps are those that check named");
    if (isRefused) {
      t.match(said.join("\n"), entry.reason);
      t.same(ofKind(after), ofKind(before), "nothing is changed");
      t.equal(planText(again), planText(entry));
      return;
    }
    if (live !== undefined) t.same(keys(after), keys(before), "no object is lost");
    t.equal(planText(again), planText({ ...entry, verdict: "applicable", steps: entry.steps.slice(-1) }));
    const isMigrated = entry.steps.some((step) => step.kind === "migrate");
    await assertArrived(t, engine, kind, manifest, { dropped: entry.removedVersions, isMigrated });
  });
}
