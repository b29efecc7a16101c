// The planner: from a CRD of the cluster to that of a file, each pair with its steps.
import tap from "tap";
import { type CrdManifest } from "../../src/inventory/steps.ts";
import { type Facts, plain, type Plan, type Step, steps } from "../../src/inventory/steps.ts";
import { epochOf } from "../../src/apiservers/converge.ts";
import { MIGRATING } from "../../src/freeze/rule.ts";
import { type Crd, type ManagedFieldsEntry, storageVersion } from "../../src/kube/objects.ts";

/** `v1+` is stored, `v1-` is not served; `v1:ab` has a schema with the fields a and b. */
type Versions = string;
/** How objects are converted: not at all, by a webhook, or by another one. */
type Conversion = "None" | "W" | "X";

interface More {
  /** `status.storedVersions`. @default the storage version */
  readonly stored?: string;
  /** Of the CRD, and of the file. @default None, None */
  readonly by?: readonly [Conversion, Conversion];
  readonly facts?: Facts;
  /** Who wrote storedVersions last. @default no client */
  readonly pruner?: string;
  /** Laid over the CRD. */
  readonly live?: { readonly metadata?: object; readonly spec?: object; readonly status?: object };
  readonly file?: Partial<CrdManifest>;
}

type Pair = readonly [name: string, live: Versions | undefined, file: Versions, expected: string | RegExp, more?: More];

function versionsOf(text: Versions) {
  return text.split(" ").map((one) => {
    const [, name = "", fields = "a", flags = ""] = /^(\w+)(?::(\w+))?([+-]*)$/.exec(one) ?? [];
    const properties = Object.fromEntries(fields.split("").map((field) => [field, { type: "string" }]));
    const schema = { openAPIV3Schema: { type: "object", properties } };
    return { name, served: !flags.includes("-"), storage: flags.includes("+"), schema };
  });
}

function conversionOf(by: Conversion) {
  if (by === "None") return { strategy: "None" };
  const clientConfig = { service: { namespace: "default", name: by } };
  return { strategy: "Webhook", webhook: { conversionReviewVersions: ["v1"], clientConfig } };
}

function liveWith(text: Versions, { by = ["None", "None"], live = {}, pruner, stored }: More): Crd {
  const versions = versionsOf(text);
  const managedFields: ManagedFieldsEntry[] = pruner === undefined ? [] : [writeOfStored(pruner)];
  const spec = { group: "example.com", names: { plural: "widgets", kind: "Widget" }, scope: "Namespaced" };
  const storedVersions = stored?.split(" ") ?? versions.flatMap(({ name, storage }) => (storage ? [name] : []));
  return {
    metadata: {
      name: "widgets.example.com",
      uid: "u",
      resourceVersion: "1",
      generation: 1,
      managedFields,
      ...live.metadata,
    },
    spec: { ...spec, versions, conversion: conversionOf(by[0]), ...live.spec },
    status: { storedVersions, ...live.status },
  };
}

function writeOfStored(manager: string): ManagedFieldsEntry {
  const fieldsV1 = { "f:status": { "f:storedVersions": {} } };
  return { manager, operation: "Update", subresource: "status", time: "2026-01-01T00:00:00Z", fieldsV1 };
}

function fileWith(text: Versions, { by = ["None", "None"], file }: More): CrdManifest {
  const versions = versionsOf(text);
  const spec = { group: "example.com", versions, conversion: conversionOf(by[1]) };
  const apiVersion = "apiextensions.k8s.io/v1";
  const target = versions.find(({ storage }) => storage)?.name ?? "";
  const name = "widgets.example.com";
  const labels = {};
  return { name, source: "crd.yaml", apiVersion, labels, annotations: {}, spec, versions, target, ...file };
}

/** `serve v1+ v2 W`: what a step writes; `serve` alone where the version is served already. */
function stepText({ does, kind, spec }: Step): string {
  if (kind === "migrate") return `migrate ${/every object in (\w+)/.exec(does)?.[1]}`;
  if (spec === undefined) return kind;
  const { conversion, versions } = spec as {
    conversion?: { webhook?: object };
    versions: ReturnType<typeof versionsOf>;
  };
  const texts = versions.map(({ name, served, storage }) => `${name}${storage ? "+" : ""}${served ? "" : "-"}`);
  const service = /"name":"(\w)"/.exec(JSON.stringify(conversion?.webhook ?? ""))?.[1];
  return [kind, ...texts, ...(service === undefined ? [] : [service])].join(" ");
}

function planText({ help, reason, steps: all, verdict }: Plan): string {
  return help.length > 0 ? `${verdict}: ${reason}; ${help.join("; ")}` : `${verdict}: ${all.map(stepText).join(", ")}`;
}

const LISTED = { stored: "v1 v2" };
const FROZEN = { live: { metadata: { annotations: { [MIGRATING]: "mine" } } } };
const condition = (type: string, status: string) => ({ status: { conditions: [{ type, status, message: "why" }] } });
const bundle = (name: string) => {
  const clientConfig = { service: { namespace: "default", name }, caBundle: "Zm9v" };
  return { spec: { conversion: { strategy: "Webhook", webhook: { clientConfig } } } };
};

const PAIRS: readonly Pair[] = [
  // Nothing is there, or nothing leaves.
  ["a CRD that is not there is created", undefined, "v1+", "applicable: apply v1+"],
  ["the same file", "v1+", "v1+", "applicable: apply v1+"],
  ["a version is added", "v1+", "v1+ v2", "applicable: apply v1+ v2"],
  ["two versions are added", "v1+", "v1+ v2 v3", "applicable: apply v1+ v2 v3"],
  ["a version is added as unserved", "v1+", "v1+ v2-", "applicable: apply v1+ v2-"],
  ["a version is no longer served", "v1 v2+", "v1- v2+", "applicable: apply v1- v2+", LISTED],
  ["a version is served again", "v1- v2+", "v1 v2+", "applicable: apply v1 v2+", LISTED],
  ["stale objects stay where their version stays", "v1 v2+", "v1 v2+", "applicable: apply v1 v2+", LISTED],
  ["a field is added", "v1:a+", "v1:ab+", "applicable: apply v1+"],
  ["the schema is narrowed", "v1:ab+", "v1:a+", "applicable: apply v1+"],
  ["the schema is narrowed, and a version is added", "v1:ab+", "v1:a+ v2", "applicable: apply v1+ v2"],
  // The storage version moves, and the old one stays.
  ["the storage version moves to a version that is there", "v1+ v2", "v1 v2+", "applicable: serve, apply v1 v2+"],
  ["it moves back", "v1 v2+", "v1+ v2", "applicable: serve, apply v1+ v2", LISTED],
  ["it moves to a new version", "v1+", "v1 v2+", "applicable: serve v1+ v2, apply v1 v2+"],
  ["it moves to a version that is not served", "v1+ v2-", "v1 v2+", "applicable: serve v1+ v2, apply v1 v2+"],
  [
    "it moves to a version that the file does not serve",
    "v1+ v2-",
    "v1 v2+-",
    "applicable: serve v1+ v2, apply v1 v2+-",
  ],
  ["it moves to a version with another schema", "v1+ v2:a", "v1 v2:ab+", "applicable: serve v1+ v2, apply v1 v2+"],
  [
    "it moves to a version with a narrower schema",
    "v1:ab+ v2:ab",
    "v1:ab v2:a+",
    "applicable: serve v1+ v2, apply v1 v2+",
  ],
  ["it moves, and the old one is no longer served", "v1+ v2", "v1- v2+", "applicable: serve, apply v1- v2+"],
  ["it moves, and a third version is added", "v1+ v2", "v1 v2+ v3", "applicable: serve, apply v1 v2+ v3"],
  // A version leaves.
  ["a version leaves that objects may be stored in", "v1 v2+", "v2+", "needs-migration: migrate v2, apply v2+", LISTED],
  ["so does one that is not served", "v1- v2+", "v2+", "needs-migration: migrate v2, apply v2+", LISTED],
  ["two leave", "v0 v1 v2+", "v2+", "needs-migration: migrate v2, apply v2+", { stored: "v0 v1 v2" }],
  [
    "one leaves, and one that objects may be stored in stays",
    "v0 v1 v2+",
    "v1 v2+",
    "needs-migration: migrate v2, apply v1 v2+",
    { stored: "v0 v1 v2" },
  ],
  ["one leaves that was never stored", "v1 v2+", "v2+", "applicable: migrate v2, apply v2+"],
  [
    "one leaves that ksvm took out of storedVersions",
    "v1 v2+",
    "v2+",
    "applicable: migrate v2, apply v2+",
    { pruner: "ksvm-freeze" },
  ],
  [
    "one leaves that a user took out of storedVersions",
    "v1 v2+",
    "v2+",
    "needs-migration: migrate v2, apply v2+",
    { pruner: "kubectl-patch" },
  ],
  [
    "one leaves that Kubernetes' own migrator took out",
    "v1 v2+",
    "v2+",
    "needs-migration: migrate v2, apply v2+",
    { pruner: "kube-controller-manager" },
  ],
  ["one leaves, and one is added", "v1 v2+", "v2+ v3", "needs-migration: migrate v2, apply v2+ v3", LISTED],
  ["one leaves, and the schema is narrowed", "v1 v2:ab+", "v2:a+", "needs-migration: migrate v2, apply v2+", LISTED],
  [
    "the one that was never stored leaves, and the stored one stays",
    "v1 v2+ v3",
    "v1 v2+",
    "applicable: migrate v2, apply v1 v2+",
    LISTED,
  ],
  // The storage version leaves.
  [
    "a new version takes the place of the old one",
    "v1+",
    "v2+",
    "needs-migration: serve v1+ v2, flip v1 v2+, migrate v2, apply v2+",
  ],
  [
    "a version that is there takes its place",
    "v1+ v2",
    "v2+",
    "needs-migration: serve, flip v1 v2+, migrate v2, apply v2+",
  ],
  [
    "one that is not served takes its place",
    "v1+ v2-",
    "v2+",
    "needs-migration: serve v1+ v2, flip v1 v2+, migrate v2, apply v2+",
  ],
  [
    "one that the file does not serve takes its place",
    "v1+ v2",
    "v2+- v3",
    "needs-migration: serve, flip v1 v2+, migrate v2, apply v2+- v3",
  ],
  [
    "two new ones take its place",
    "v1+",
    "v2 v3+",
    "needs-migration: serve v1+ v3, flip v1 v3+, migrate v3, apply v2 v3+",
  ],
  [
    "all three are replaced",
    "v0 v1 v2+",
    "v3+ v4",
    "needs-migration: serve v0 v1 v2+ v3, flip v0 v1 v2 v3+, migrate v3, apply v3+ v4",
    { stored: "v0 v2" },
  ],
  [
    "the storage version moves, and an older one leaves",
    "v0 v1+",
    "v1 v2+",
    "needs-migration: serve v0 v1+ v2, flip v0 v1 v2+, migrate v2, apply v1 v2+",
    { stored: "v0 v1" },
  ],
  [
    "the storage version moves, and an older one leaves that was never stored",
    "v0 v1+",
    "v1 v2+",
    "applicable: serve v0 v1+ v2, flip v0 v1 v2+, migrate v2, apply v1 v2+",
  ],
  [
    "the storage version leaves for an older one",
    "v1 v2+",
    "v1+",
    "needs-migration: serve, flip v2 v1+, migrate v1, apply v1+",
    LISTED,
  ],
  [
    "the new one has a narrower schema",
    "v1:ab+",
    "v2:a+",
    "needs-migration: serve v1+ v2, flip v1 v2+, migrate v2, apply v2+",
  ],
  // Conversion.
  ["a webhook comes", "v1 v2+", "v1 v2+", "applicable: apply v1 v2+ W", { by: ["None", "W"] }],
  ["a webhook is replaced", "v1 v2+", "v1 v2+", "applicable: apply v1 v2+ X", { by: ["W", "X"] }],
  [
    "a webhook comes with a new storage version",
    "v1+",
    "v1 v2+",
    "applicable: serve v1+ v2 W, apply v1 v2+ W",
    { by: ["None", "W"] },
  ],
  [
    "a webhook comes with a version that is there",
    "v1+ v2",
    "v1 v2+",
    "applicable: serve v1+ v2 W, apply v1 v2+ W",
    { by: ["None", "W"] },
  ],
  [
    "a webhook is replaced as the storage version moves",
    "v1+ v2",
    "v1 v2+",
    "applicable: serve v1+ v2 X, apply v1 v2+ X",
    { by: ["W", "X"] },
  ],
  [
    "the storage version moves under a webhook",
    "v1+ v2",
    "v1 v2+",
    "applicable: serve, apply v1 v2+ W",
    { by: ["W", "W"] },
  ],
  [
    "a version leaves under a webhook",
    "v1 v2+",
    "v2+",
    "needs-migration: migrate v2, apply v2+ W",
    { by: ["W", "W"], ...LISTED },
  ],
  [
    "a new version takes the place of the old one under a webhook",
    "v1+",
    "v2+",
    "needs-migration: serve v1+ v2 W, flip v1 v2+ W, migrate v2, apply v2+ W",
    { by: ["W", "W"] },
  ],
  [
    "a new version comes with its webhook in the place of the old one",
    "v1+",
    "v2+",
    "needs-migration: serve v1+ v2 W, flip v1 v2+ W, migrate v2, apply v2+ W",
    { by: ["None", "W"] },
  ],
  [
    "while objects leave, the webhook of now goes on to convert",
    "v1+ v2",
    "v2+",
    "needs-migration: serve, flip v1 v2+ W, migrate v2, apply v2+ X",
    { by: ["W", "X"] },
  ],
  [
    "a webhook comes with a new storage version, and an older one leaves",
    "v0 v1+",
    "v1 v2+",
    "needs-migration: serve v0 v1+ v2 W, flip v0 v1 v2+ W, migrate v2, apply v1 v2+ W",
    { by: ["None", "W"], stored: "v0 v1" },
  ],
  [
    "a webhook is replaced as the storage version moves to one that is there, and an older one leaves",
    "v0 v1+ v2",
    "v1 v2+",
    "needs-migration: serve, flip v0 v1 v2+ W, migrate v2, apply v1 v2+ X",
    { by: ["W", "X"], stored: "v0 v1" },
  ],
  [
    "a webhook goes, and nothing would convert what is stored in v1",
    "v1 v2+",
    "v1 v2+",
    "needs-migration: migrate v2, apply v1 v2+",
    { by: ["W", "None"], ...LISTED },
  ],
  [
    "a webhook goes that nothing stored needs",
    "v1 v2+",
    "v1 v2+",
    "applicable: migrate v2, apply v1 v2+",
    { by: ["W", "None"] },
  ],
  [
    "a webhook goes as the storage version moves",
    "v1+ v2",
    "v1- v2+",
    "needs-migration: serve, flip v1 v2+ W, migrate v2, apply v1- v2+",
    { by: ["W", "None"] },
  ],
  [
    "a webhook goes with a version",
    "v1 v2+",
    "v2+",
    "needs-migration: migrate v2, apply v2+",
    { by: ["W", "None"], ...LISTED },
  ],
  [
    "a webhook goes in the file that brings a version",
    "v1+",
    "v1 v2+",
    /^refused: .*nothing would convert them to v2; keep spec\.conversion/,
    { by: ["W", "None"] },
  ],
  [
    "a webhook goes in the file that replaces the version",
    "v1+",
    "v2+",
    /^refused: .*nothing would convert them to v2/,
    { by: ["W", "None"] },
  ],
  // There is no way.
  [
    "an API of CRDs that is not served",
    "v1+",
    "v1+",
    /^refused: apiextensions.k8s.io\/v1beta1 is not served/,
    { file: { apiVersion: "apiextensions.k8s.io/v1beta1" } },
  ],
  [
    "objects in a version that neither has",
    "v2+",
    "v2+",
    /^data-loss: objects are stored in v1, which neither.*ksvm doctor widgets\.example\.com --repair/,
    { facts: { lostIn: "v1" } },
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
    { live: { metadata: { deletionTimestamp: "2026-01-01T00:00:00Z" } } },
  ],
  [
    "names that are not accepted",
    "v1+",
    "v1+ v2",
    /^refused: its names are not accepted: why/,
    { live: condition("NamesAccepted", "False") },
  ],
  [
    "a schema that is not structural, and stays so for all that is known",
    "v1+ v2",
    "v1+",
    /^refused: its schema is not structural: why/,
    { live: condition("NonStructuralSchema", "True") },
  ],
  [
    "storedVersions with a version that spec lacks",
    "v2+",
    "v2+",
    /^refused: .*which spec\.versions lacks; ksvm doctor/,
    LISTED,
  ],
  ["a file that brings that one back", "v2+", "v1- v2+", "applicable: apply v1- v2+", LISTED],
  ["no version is served", "v1- v2+-", "v2+-", /^refused: it serves no version; kubectl patch/, LISTED],
  ["a file that serves one again", "v1- v2+-", "v1- v2+", "applicable: apply v1- v2+", LISTED],
  ["a file that serves one again, and drops another", "v1- v2+-", "v2+", /^refused: it serves no version/, LISTED],
  ["a storage version that is not served", "v1:ab v2:a+-", "v1:ab+", /^refused: its storage version v2 is not served/],
  [
    "unknown fields, which a user has to look at before",
    "v1+",
    "v1+",
    /^refused: spec\.preserveUnknownFields is true.*ksvm check -f FILE/,
    { live: { spec: { preserveUnknownFields: true } } },
  ],
  ["no storage version", "v1+", "v1", /^refused: it has no storage version/],
  ["two storage versions", "v1+", "v1+ v2+", /^refused: it has no storage version/, { file: { target: "" } }],
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

tap.ok(PAIRS.length >= 60);
for (const [name, before, after, expected, more = {}] of PAIRS) {
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
  t.equal(bundleIn(liveWith("v1+", { live: bundle("W") })), "Zm9v");
  t.equal(bundleIn(liveWith("v1+", { live: bundle("X") })), undefined);
});

await tap.test("a change of the CRD has the objects tried and rewritten anew", async (t) => {
  const more: More = { ...LISTED };
  const kinds = (live: Crd, facts: Facts) => steps(live, fileWith("v2+", more), facts).steps.map(({ kind }) => kind);
  const live = liveWith("v1 v2+", more);
  t.same(kinds(live, { rewritten: epochOf(live) }), ["apply"]);
  const changed = { ...live, metadata: { ...live.metadata, generation: 2 } };
  t.same(kinds(changed, { rewritten: epochOf(live) }), ["migrate", "apply"]);
  const flipped = liveWith("v1+ v2", {});
  t.same(kinds(flipped, { tried: epochOf(flipped) }), ["flip", "migrate", "apply"]);
  t.same(kinds(flipped, { tried: epochOf(changed) }), ["serve", "flip", "migrate", "apply"]);
});
