// The planner: from a CRD of the cluster to that of a file, each pair with its steps.
import tap from "tap";
import { type CrdManifest, type Facts, plain, type Step, steps } from "../../src/inventory/steps.ts";
import { epochOf } from "../../src/apiservers/converge.ts";
import { MIGRATING } from "../../src/freeze/rule.ts";
import { type Crd, type ManagedFieldsEntry, storageVersion } from "../../src/kube/objects.ts";
import { conversionIn, LISTED, type More, type Pair, PAIRS, planText, type Versions, versionsIn } from "./pairs.ts";

/** What only a unit test can bring about. */
interface Unusual extends More {
  readonly facts?: Facts;
  /** Laid over the CRD. */
  readonly over?: { readonly metadata?: object; readonly spec?: object; readonly status?: object };
}

const WEBHOOKS = { url: "https://localhost/" };

function liveWith(text: Versions, { by = ["None", "None"], over = {}, pruner, stored }: Unusual): Crd {
  const versions = versionsIn(text);
  const storage = versions.flatMap(({ name, storage: isStored }) => (isStored ? [name] : []));
  const managedFields: ManagedFieldsEntry[] = pruner === undefined ? [] : [writeOfStored(pruner)];
  const spec = { group: "example.com", names: { plural: "widgets", kind: "Widget" }, scope: "Namespaced" };
  const storedVersions = pruner === undefined ? (stored?.split(" ") ?? storage) : storage;
  return {
    metadata: {
      name: "widgets.example.com",
      uid: "u",
      resourceVersion: "1",
      generation: 1,
      managedFields,
      ...over.metadata,
    },
    spec: { ...spec, versions, conversion: conversionIn(by[0], WEBHOOKS), ...over.spec },
    status: { storedVersions, ...over.status },
  };
}

function writeOfStored(manager: string): ManagedFieldsEntry {
  const fieldsV1 = { "f:status": { "f:storedVersions": {} } };
  return { manager, operation: "Update", subresource: "status", time: "2026-01-01T00:00:00Z", fieldsV1 };
}

function fileWith(
  text: Versions,
  { apiVersion = "apiextensions.k8s.io/v1", by = ["None", "None"] }: More,
): CrdManifest {
  const versions = versionsIn(text);
  const spec = { group: "example.com", versions, conversion: conversionIn(by[1], WEBHOOKS) };
  const [stored, ...further] = versions.filter(({ storage }) => storage);
  const target = further.length === 0 ? (stored?.name ?? "") : "";
  const name = "widgets.example.com";
  return { name, source: "crd.yaml", apiVersion, labels: {}, annotations: {}, spec, versions, target };
}

const FROZEN = { over: { metadata: { annotations: { [MIGRATING]: "mine" } } } };
const condition = (type: string, status: string) => ({ status: { conditions: [{ type, status, message: "why" }] } });
const bundle = (name: string) => {
  const clientConfig = { url: `${WEBHOOKS.url}${name}`, caBundle: "Zm9v" };
  return { spec: { conversion: { strategy: "Webhook", webhook: { clientConfig } } } };
};

/** An API server does not let these come about, or a test of its own carries them out. */
const UNUSUAL: readonly Pair<Unusual>[] = [
  [
    "objects in a version that neither has",
    "v2+",
    "v2+",
    /^data-loss: objects are stored in v1, which the CRD lacks.*ksvm doctor widgets\.example\.com --repair/,
    { facts: { lostIn: "v1" } },
  ],
  [
    "a file that brings that version back, and moves the storage version",
    "v2+ v3",
    "v1 v2 v3+",
    /^data-loss: .*ksvm doctor widgets\.example\.com --repair/,
    { facts: { lostIn: "v1" } },
  ],
  [
    "managedFields of a version that is gone, where the storage version moves",
    "v1+ v2",
    "v1 v2+",
    "applicable: serve, flip v1 v2+, migrate v2, apply v1 v2+",
    { facts: { hasGoneFields: true } },
  ],
  [
    "managedFields of a version that is gone, where a webhook comes with the move",
    "v1+ v2",
    "v1 v2+",
    "applicable: serve v1+ v2 W, flip v1 v2+ W, migrate v2, apply v1 v2+ W",
    { facts: { hasGoneFields: true }, by: ["None", "W"] },
  ],
  ["a file that brings that version back", "v2+", "v1- v2+", "applicable: apply v1- v2+", { facts: { lostIn: "v1" } }],
  [
    "the freeze of another client, where the storage version moves",
    "v1+ v2",
    "v1 v2+",
    /^refused: its storage version is frozen.*kubectl annotate crd/,
    FROZEN,
  ],
  [
    "the freeze of another client, where a version leaves",
    "v1 v2+",
    "v2+",
    /^refused: its storage version is frozen/,
    { ...FROZEN, ...LISTED },
  ],
  ["the freeze of another client is no matter else", "v1+", "v1+ v2", "applicable: apply v1+ v2", FROZEN],
  [
    "a CRD that is being deleted",
    "v1+",
    "v1+",
    /^refused: it is being deleted/,
    { over: { metadata: { deletionTimestamp: "2026-01-01T00:00:00Z" } } },
  ],
  [
    "names that are not accepted",
    "v1+",
    "v1+ v2",
    /^refused: its names are not accepted: why/,
    { over: condition("NamesAccepted", "False") },
  ],
  [
    "a schema that is not structural, and stays so for all that is known",
    "v1+ v2",
    "v1+",
    /^refused: its schema is not structural: why/,
    { over: condition("NonStructuralSchema", "True") },
  ],
  [
    "storedVersions with a version that spec lacks",
    "v2+",
    "v2+",
    /^refused: .*which spec\.versions lacks; ksvm doctor/,
    LISTED,
  ],
  ["a file that brings that one back", "v2+", "v1- v2+", "applicable: apply v1- v2+", LISTED],
  [
    "unknown fields, which a user has to look at before",
    "v1+",
    "v1+",
    /^refused: spec\.preserveUnknownFields is true.*ksvm check -f FILE/,
    { over: { spec: { preserveUnknownFields: true } } },
  ],
];

/** Does the steps as upgrade() does, one after the other, and plans anew after each. */
function* carriedOut(live: Crd | undefined, file: CrdManifest, facts: Facts): Generator<Step, void> {
  let [crd, known] = [live, facts];
  for (let turn = 0; turn < 9; turn++) {
    const [step] = steps(crd, file, known).steps;
    if (step === undefined) return;
    yield step;
    if (step.kind === "apply" || crd === undefined) return;
    const generation = (crd.metadata.generation ?? 0) + (step.spec === undefined ? 0 : 1);
    crd = { ...crd, metadata: { ...crd.metadata, generation }, spec: { ...plain(crd.spec), ...(step.spec as object) } };
    const stored = new Set([...(crd.status?.storedVersions ?? []), storageVersion(crd)]);
    crd = { ...crd, status: { storedVersions: [...stored] } };
    const epoch = epochOf(crd);
    if (step.kind === "serve") known = { ...known, tried: epoch };
    if (step.kind !== "migrate") continue;
    known = { ...known, rewritten: epoch };
    crd = { ...crd, status: { storedVersions: [storageVersion(crd)] } };
  }
}

const all: readonly Pair<Unusual>[] = [...PAIRS, ...UNUSUAL];
for (const [name, before, after, expected, more = {}] of all) {
  await tap.test(`${name}: ${before ?? "nothing"} to ${after}`, async (t) => {
    const live = before === undefined ? undefined : liveWith(before, more);
    const file = fileWith(after, more);
    const plan = steps(live, file, more.facts ?? {});
    if (typeof expected === "string") t.equal(planText(plan), expected);
    else t.match(planText(plan), expected);
    if (plan.help.length > 0) return;
    const done = [...carriedOut(live, file, more.facts ?? {})];
    t.same(
      done.map(({ kind }) => kind),
      plan.steps.map(({ kind }) => kind),
      "planned anew after each step, the same are left",
    );
    const dropped = (live?.spec.versions ?? []).filter(({ name: one }) => !after.split(/[ :+-]+/).includes(one));
    const kept = plan.steps.slice(0, -1).flatMap(({ spec }) => (spec === undefined ? [] : [JSON.stringify(spec)]));
    for (const { name: one } of dropped) {
      t.ok(
        plan.steps.some(({ kind }) => kind === "migrate"),
        "no version leaves before every object is rewritten",
      );
      t.ok(
        kept.every((spec) => spec.includes(`"name":"${one}"`)),
        `every step before keeps ${one}`,
      );
    }
  });
}

await tap.test("the CA bundle that another client wrote for the same webhook stays, and no other one's", async (t) => {
  const bundleIn = (live: Crd): unknown => {
    const text = JSON.stringify(steps(live, fileWith("v1+", { by: ["W", "W"] }), {}).steps[0]?.spec?.["conversion"]);
    return /"caBundle":"(\w+)"/.exec(text)?.[1];
  };
  t.equal(bundleIn(liveWith("v1+", { over: bundle("W") })), "Zm9v");
  t.equal(bundleIn(liveWith("v1+", { over: bundle("X") })), undefined);
});

await tap.test("a change of the CRD has the objects tried and rewritten anew", async (t) => {
  const kinds = (live: Crd, facts: Facts) => steps(live, fileWith("v2+", LISTED), facts).steps.map(({ kind }) => kind);
  const live = liveWith("v1 v2+", LISTED);
  t.same(kinds(live, { rewritten: epochOf(live) }), ["apply"]);
  const changed = { ...live, metadata: { ...live.metadata, generation: 2 } };
  t.same(kinds(changed, { rewritten: epochOf(live) }), ["migrate", "apply"]);
  const flipped = liveWith("v1+ v2", {});
  t.same(kinds(flipped, { tried: epochOf(flipped) }), ["flip", "migrate", "apply"]);
  t.same(kinds(flipped, { tried: epochOf(changed) }), ["serve", "flip", "migrate", "apply"]);
});
