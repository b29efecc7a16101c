// Random pairs of a CRD and a file, each carried out on a small model of what an API server does to stored objects.
// What check() says of a pair comes true, and no object loses a field of which it says nothing.
import tap from "tap";
import { epochOf } from "../../src/apiservers/converge.ts";
import { type CrdManifest, type Facts, plain, steps, webhookOf } from "../../src/inventory/steps.ts";
import { check } from "../../src/inventory/upgrade.ts";
import type { Client } from "../../src/kube/client.ts";
import { type Crd, hasConversionWebhook, type ObjectMeta, storageVersion } from "../../src/kube/objects.ts";
import { targetOf } from "../../src/migrator/rewrite.ts";
import { between, pick, randomFrom, shuffled } from "../chaos/random.ts";
import { TEST_SEED } from "../seed.ts";
import { type Conversion, conversionIn, planText, type Versions, versionsIn } from "./pairs.ts";

const PAIRS = 6_000;
const random = randomFrom(TEST_SEED);

interface RandomPair {
  readonly live: Versions;
  readonly file: Versions;
  readonly by: readonly [Conversion, Conversion];
  /** In each of these versions an object is stored. */
  readonly stored: readonly string[];
  /** Whether kubectl took all but the storage version out of storedVersions, and rewrote nothing. */
  readonly isPatched: boolean;
  /** Whether managedFields of the objects name a version that neither has. Else they have none. */
  readonly isStale: boolean;
}

/** The fields of a schema; one with `o` keeps any. */
const SCHEMAS = ["a", "ab", "ab", "ac", "abc", "o"] as const;

function drawPair(): RandomPair {
  const usual = ["v1", "v2", "v3", "v4"].map((name) => ({ name, fields: pick(random, SCHEMAS) }));
  // Most versions keep their schema.
  const next = usual.map(({ fields, name }) => ({ name, fields: random() < 0.6 ? fields : pick(random, SCHEMAS) }));
  const [live, file] = [drawVersions(usual.slice(0, 3)), drawVersions(next)];
  const stored = versionsOf(live).flatMap(({ name, storage }) => (storage || random() < 0.5 ? [name] : []));
  const by = [pick(random, ["None", "None", "W"] as const), pick(random, ["None", "None", "W", "X"] as const)] as const;
  return { live, file, by, stored, isPatched: random() < 0.3, isStale: random() < 0.2 };
}

function drawVersions(all: readonly { readonly name: string; readonly fields: string }[]): Versions {
  const count = between(random, 1, 4);
  const storage = between(random, 0, count);
  const flags = (index: number): string => `${index === storage ? "+" : ""}${random() < 0.2 ? "-" : ""}`;
  const drawn = shuffled(random, all).slice(0, count);
  return drawn.map(({ fields, name }, index) => `${name}:${fields}${flags(index)}`).join(" ");
}

function versionsOf(text: Versions) {
  const versions = versionsIn(text);
  const specs = versions.map(({ schema }) => schema.openAPIV3Schema.properties.spec);
  for (const one of specs)
    if ("o" in one.properties) Object.assign(one, { "x-kubernetes-preserve-unknown-fields": true });
  return versions;
}

const NAME = "widgets.example.com";
const HOOK = { url: "https://localhost/" };

function liveOf({ by, isPatched, live, stored }: RandomPair): Crd {
  const [names, conversion] = [{ plural: "widgets", kind: "Widget" }, conversionIn(by[0], HOOK)];
  const spec = { group: "example.com", names, scope: "Namespaced", versions: versionsOf(live), conversion };
  const patch = { manager: "kubectl", subresource: "status", fieldsV1: { "f:status": { "f:storedVersions": {} } } };
  const managedFields = isPatched ? [patch] : [];
  const metadata = { name: NAME, uid: "u", resourceVersion: "1", generation: 1, managedFields };
  return { metadata, spec, status: { storedVersions: isPatched ? [storageVersion({ metadata, spec })] : [...stored] } };
}

function fileOf({ by, file }: RandomPair): CrdManifest {
  const versions = versionsOf(file);
  const spec = { group: "example.com", versions, conversion: conversionIn(by[1], HOOK) };
  const target = versions.find(({ storage }) => storage)?.name ?? "";
  const meta = { source: "crd.yaml", apiVersion: "apiextensions.k8s.io/v1", labels: {}, annotations: {} };
  return { name: NAME, ...meta, spec, versions, target };
}

// The model.

interface StoredObject {
  readonly metadata: ObjectMeta;
  readonly version: string;
  /** `@b`: the webhook keeps b in an annotation, for versions that have b. */
  readonly fields: readonly string[];
}

const isPlain = (field: string): boolean => !field.startsWith("@");

class ApiServer {
  crd: Crd;
  objects: readonly StoredObject[];
  readonly #pair: RandomPair;

  constructor(pair: RandomPair) {
    this.crd = liveOf(pair);
    this.#pair = pair;
    this.objects = pair.stored.map((version) => {
      // Each object has every field that its version can have; where a webhook converts, the others as well.
      const all = ["a", "b", "c"].map((field) => (this.#keeps(version, field) ? field : `@${field}`));
      const fields = all.filter((field) => isPlain(field) || hasConversionWebhook(this.crd));
      const managedFields = pair.isStale ? [{ apiVersion: "example.com/v0" }] : [];
      const metadata = { name: `w-${version}`, uid: version, resourceVersion: "1", managedFields };
      return { metadata, version, fields };
    });
  }

  #keeps(version: string, field: string): boolean {
    const { schema } = this.crd.spec.versions.find(({ name }) => name === version) ?? {};
    const { properties = {} } = schema?.openAPIV3Schema?.properties?.["spec"] ?? {};
    return !isPlain(field) || field in properties || "o" in properties;
  }

  /** A webhook knows the versions that it comes with, and one that brings the file's storage version those of now. */
  #isKnown(version: string): boolean {
    const { by, file, live } = this.#pair;
    const webhook = webhookOf(this.crd.spec.conversion)?.slice(HOOK.url.length);
    const isAll = by[0] === by[1] || !live.includes(fileOf(this.#pair).target);
    const known = webhook === by[1] ? `${file} ${isAll ? live : ""}` : live;
    return known.includes(version);
  }

  /** What the API server answers in a version. It prunes, and converts by None or by a webhook that loses nothing. */
  read(object: StoredObject, version: string): StoredObject {
    const prune = (all: readonly string[], by: string) => all.filter((field) => this.#keeps(by, field));
    const fields = prune(object.fields, object.version);
    const isConverted = object.version !== version && hasConversionWebhook(this.crd);
    if (!isConverted) return { ...object, version, fields: prune(fields, version) };
    const unknown = [object.version, version].find((one) => !this.#isKnown(one));
    if (unknown !== undefined) throw new Error(`its webhook does not know ${unknown}`);
    const bare = fields.map((field) => field.replace("@", ""));
    return { ...object, version, fields: bare.map((field) => (this.#keeps(version, field) ? field : `@${field}`)) };
  }

  /** The fields that clients see in any version that is served. */
  shown(object: StoredObject): readonly string[] {
    const served = this.crd.spec.versions.filter((version) => version.served);
    return [...new Set(served.flatMap(({ name }) => this.read(object, name).fields))].filter(isPlain);
  }

  /** What a rewrite leaves in etcd with that storage version. */
  rewritten(storage: string): readonly StoredObject[] {
    const versions = this.crd.spec.versions.map((one) => ({ ...plain(one), storage: one.name === storage }));
    const { version } = targetOf({ ...this.crd, spec: { ...plain(this.crd.spec), versions } }).resource;
    return this.objects.map((object) => this.read(this.read(object, version), storage));
  }

  migrate(): void {
    this.objects = this.rewritten(storageVersion(this.crd));
    this.crd = { ...this.crd, status: { storedVersions: [storageVersion(this.crd)] } };
  }

  write(change: object): void {
    const spec = { ...plain(this.crd.spec), ...change };
    const metadata = { ...this.crd.metadata, generation: (this.crd.metadata.generation ?? 0) + 1 };
    const listed = new Set(this.crd.status?.storedVersions).add(storageVersion({ metadata, spec }));
    const lost = [...listed].find((stored) => spec.versions.every(({ name }) => name !== stored));
    if (lost !== undefined) throw new Error(`storedVersions lists ${lost}, which is missing from spec.versions`);
    this.crd = { metadata, spec, status: { storedVersions: [...listed] } };
  }

  /** For check(), which sends reads and dry runs. Each is accepted. */
  client(): Client {
    const itemsIn = (path: string) => {
      const answers = this.objects.map((object) => this.read(object, path.split("/")[3] ?? ""));
      const specOf = (fields: readonly string[]) => Object.fromEntries(fields.filter(isPlain).map((one) => [one, ""]));
      return answers.map(({ fields, metadata }) => ({ metadata, spec: specOf(fields) }));
    };
    const page = (path: string) => ({ metadata: { resourceVersion: "1" }, items: itemsIn(path) });
    const stub = {
      clock: { monotonic: () => 0, sleep: async () => undefined },
      find: async () => this.crd,
      get: async () => ({}),
      list: async (path: string) => page(path),
      listWithSize: async (path: string) => ({ body: page(path), size: 1 }),
      create: async () => ({ status: { allowed: true } }),
      patch: async (_path: string, body: { readonly metadata?: object }) => ("metadata" in body ? body : this.crd),
    };
    return stub as unknown as Client;
  }
}

// The invariants.

const INVARIANTS = {
  end: "the steps end, and the API server refuses none",
  stored: "no version leaves in which an object is stored, and storedVersions lists what is stored",
  kinds: "the steps that are carried out are those that check() names",
  losses: "each field that objects lose is named, or check() says that it is not known",
  counts: "each field that is named is lost, by as many objects as it says",
};
/** Of each pair that goes on: what is found against an invariant. */
const played: Map<string, string>[] = [];

for (let count = 0; count < PAIRS; count++) {
  const pair = drawPair();
  const [server, file] = [new ApiServer(pair), fileOf(pair)];
  const entry = await check(server.client(), file, new AbortController().signal);
  if (entry.verdict !== "applicable" && entry.verdict !== "needs-migration") continue;
  const faults = new Map<string, string>();
  played.push(faults);
  const found = (invariant: keyof typeof INVARIANTS, what: string): void => {
    const { by, isPatched, live, stored } = pair;
    const text = `${live} [${stored.join(" ")}${isPatched ? ", patched" : ""}] ${by[0]} to ${pair.file} ${by[1]}`;
    faults.set(invariant, `${text}: ${what}; ${planText(entry)}`);
  };
  const first = server.objects.map((object) => ({ ...object, shown: server.shown(object) }));
  const kinds: string[] = [];
  let known: Facts = { isLossless: entry.losses?.length === 0, hasGoneFields: entry.managedFields !== undefined };
  try {
    // As upgrade() does: one step after the other, and each is planned anew.
    while (kinds.at(-1) !== "apply") {
      const plan = steps(server.crd, file, known);
      const [step] = plan.steps;
      if (step === undefined || kinds.length > 8) throw new Error(`no end: ${plan.reason}`);
      kinds.push(step.kind);
      if (step.spec !== undefined) server.write(step.spec);
      const epoch = epochOf(server.crd);
      if (step.kind === "serve") known = { ...known, tried: epoch };
      if (step.kind === "serve") server.rewritten(file.target);
      if (step.kind === "migrate") known = { ...known, rewritten: epoch };
      if (step.kind === "migrate") server.migrate();
      const isHonest = !pair.isPatched || kinds.includes("migrate");
      const there = isHonest ? server.crd.status?.storedVersions : server.crd.spec.versions.map(({ name }) => name);
      const orphan = server.objects.find(({ version }) => there?.includes(version) !== true);
      if (orphan !== undefined) found("stored", `${orphan.version} after ${kinds.join(", ")}`);
    }
  } catch (error) {
    found("end", `${String(error)} after ${kinds.join(", ")}`);
  }
  if (faults.size > 0) continue;
  if (kinds.join(", ") !== entry.steps.map(({ kind }) => kind).join(", ")) found("kinds", kinds.join(", "));
  const losses = new Map((entry.losses ?? []).map(({ objects, path }) => [path.replace("spec.", ""), objects]));
  const isAnyNamed = entry.notes.some((note) => note.includes("not known")) || losses.has("*");
  const lostCounts = new Map<string, number>();
  for (const [index, object] of server.objects.entries()) {
    const { fields: had = [], shown = [] } = first[index] ?? {};
    const { fields } = server.read(object, file.target);
    for (const field of shown) if (!fields.includes(field)) lostCounts.set(field, (lostCounts.get(field) ?? 0) + 1);
    const all = [...fields, ...server.shown(object)];
    const kept = hasConversionWebhook(server.crd) ? all.map((field) => field.replace("@", "")) : all;
    const lost = [...shown, ...had.filter(isPlain)].find((field) => !kept.includes(field) && !losses.has(field));
    if (lost !== undefined && !isAnyNamed) found("losses", `${lost} of ${object.metadata.name} is lost`);
  }
  for (const [field, objects] of losses) {
    const count = lostCounts.get(field) ?? 0;
    // Of a version that is not served, and of `*`, the schema alone is known.
    if (objects !== undefined && objects !== count) found("counts", `${field} of ${count}, not ${objects} objects`);
  }
}

for (const [invariant, name] of Object.entries(INVARIANTS)) {
  await tap.test(name, async (t) => {
    const faults = played.flatMap((found) => found.get(invariant) ?? []);
    t.same(faults.slice(0, 5), [], `${faults.length} of ${played.length} pairs`);
  });
}

await tap.test("most pairs go on, so that there is something to carry out", async (t) => {
  t.ok(played.length >= PAIRS / 2, `${played.length} of ${PAIRS}`);
});
