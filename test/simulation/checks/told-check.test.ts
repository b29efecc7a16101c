import tap from "tap";
import { MIGRATING_ANNOTATION, OWNER_ANNOTATION } from "../../../src/api/names.ts";
import type { MigrationEvent } from "../../../src/migrator/events.ts";
import type { MigrationResult } from "../../../src/migrator/result.ts";
import type { Verification } from "../../../src/verify/verification.ts";
import { SimEtcd } from "../model/etcd.ts";
import type { ModelObject } from "../model/model-object.ts";
import { noteWriters, ToldCheck, type ToldCheckOptions } from "./told-check.ts";

const PREFIX = "/registry/sim.example.com/widgets/";
const CRD_KEY = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.sim.example.com";
const NOTHING = { done: 0, migrated: 0, current: 0, newer: 0, gone: 0, failed: 0, changed: 0, total: 0 };
const MIGRATED: MigrationResult = {
  resource: "widgets.sim.example.com",
  outcome: "migrated",
  storageVersion: "v1",
  storedVersions: ["v1"],
  crd: "1/1",
  counts: NOTHING,
  failures: [],
  changedObjects: [],
};

function crd(
  storedVersions: readonly string[],
  annotations: object = {},
  { generation = 1, storage = "v1" } = {},
): ModelObject {
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: "widgets.sim.example.com", uid: "1", generation, annotations: annotations as never },
    spec: {
      group: "sim.example.com",
      names: { plural: "widgets", kind: "Widget" },
      versions: ["v1alpha1", "v1"].map((name) => ({ name, served: true, storage: name === storage })),
    },
    status: { storedVersions },
  };
}

function world(options: Partial<ToldCheckOptions> = {}) {
  const etcd = new SimEtcd();
  const violations: string[] = [];
  let writer: string | undefined = "user";
  noteWriters(etcd, () => writer);
  const write = (by: string, key: string, object: ModelObject, encryptionKey = 0): void => {
    writer = by;
    etcd.put(key, { object, encryptionKey }, etcd.get(key)?.modRevision ?? 0);
    writer = undefined;
  };
  const store = (name: string, version: string, { by = "user", encryptionKey = 0 } = {}): void =>
    write(
      by,
      `${PREFIX}default/${name}`,
      { apiVersion: `sim.example.com/${version}`, kind: "Widget", metadata: { name, uid: name } },
      encryptionKey,
    );
  const begin = (): ToldCheck =>
    new ToldCheck({
      report: (violation) => violations.push(violation),
      etcd,
      writer: () => writer,
      program: "ksvm-0",
      resource: "widgets.sim.example.com",
      prefix: PREFIX,
      storedNow: () => new Set(["sim.example.com/v1"]),
      keyAtEnd: () => undefined,
      ...options,
    });
  return { begin, etcd, store, violations, write };
}

/** What the check says of an event, right after a write of the CRD. */
function said(event: MigrationEvent, annotations: object, by: string): readonly string[] {
  const { begin, store, violations, write } = world();
  store("a", "v1alpha1");
  const check = begin();
  write(by, CRD_KEY, crd(["v1alpha1", "v1"], annotations));
  check.told(event);
  return violations;
}

/** What the check says of counts, after one of two objects was rewritten and the other deleted. */
function saidOf(counts: Partial<typeof NOTHING>): readonly string[] {
  const { begin, etcd, store, violations } = world();
  store("a", "v1alpha1");
  store("b", "v1alpha1");
  const check = begin();
  store("a", "v1", { by: "ksvm-0" });
  etcd.delete(`${PREFIX}default/b`, etcd.revision - 1);
  check.told({ type: "progress", counts: { ...NOTHING, ...counts } });
  return violations;
}

await tap.test("migrated, and an object is stored in an older version", async (t) => {
  const { begin, store, violations, write } = world();
  write("user", CRD_KEY, crd(["v1"]));
  store("a", "v1");
  begin().ended(MIGRATED);
  t.same(violations, []);
  store("b", "v1alpha1");
  begin().ended(MIGRATED);
  t.match(violations, [/it says migrated, and \S+\/b is stored as sim.example.com\/v1alpha1/]);
});

await tap.test("migrated, and storedVersions has more than the storage version", async (t) => {
  const { begin, violations, write } = world();
  write("user", CRD_KEY, crd(["v1alpha1", "v1"]));
  begin().ended({ ...MIGRATED, storedVersions: ["v1alpha1", "v1"] });
  t.match(violations, [/it says migrated to v1, and that storedVersions is \[v1alpha1,v1\]/]);
});

await tap.test("migrated, and not which CRD", async (t) => {
  const { begin, violations, write } = world();
  write("user", CRD_KEY, crd(["v1"]));
  const { crd: _crd, ...result } = MIGRATED;
  begin().ended(result);
  t.match(violations, [/it says migrated, and not of which generation of the CRD/]);
});

await tap.test("what came after the CRD changed is not told of", async (t) => {
  const { begin, store, violations, write } = world();
  write("user", CRD_KEY, crd(["v1"]));
  store("a", "v1");
  write("user", CRD_KEY, crd(["v1", "v1alpha1"], {}, { generation: 2, storage: "v1alpha1" }));
  store("b", "v1alpha1");
  begin().ended(MIGRATED);
  t.same(violations, []);
  begin().ended({ ...MIGRATED, crd: "1/3" });
  t.match(violations, [/it says migrated as of generation 3, which its CRD never had/]);
});

await tap.test("what came before the CRD changed is told of", async (t) => {
  const { begin, store, violations, write } = world();
  write("user", CRD_KEY, crd(["v1"]));
  store("a", "v1alpha1");
  write("user", CRD_KEY, crd(["v1", "v1alpha1"], {}, { generation: 2, storage: "v1alpha1" }));
  begin().ended(MIGRATED);
  t.match(violations, [/it says migrated, and \S+\/a is stored as sim.example.com\/v1alpha1/]);
});

await tap.test("another resource: what was written before the last object was done is told of", async (t) => {
  const { begin, store, violations } = world({ resource: "deployments.apps" });
  const { crd: _crd, storageVersion: _version, storedVersions: _versions, ...result } = MIGRATED;
  const check = begin();
  check.told({ type: "progress", counts: NOTHING });
  store("late", "v1alpha1");
  check.ended(result);
  t.same(violations, []);
  const next = begin();
  next.told({ type: "progress", counts: NOTHING });
  next.ended(result);
  t.match(violations, [/late is stored as/]);
});

await tap.test("another resource: its API servers stored two versions when the last object was done", async (t) => {
  const both = new Set(["sim.example.com/v1", "sim.example.com/v2"]);
  const { begin, violations } = world({ resource: "deployments.apps", storedNow: () => both });
  const { crd: _crd, storageVersion: _version, storedVersions: _versions, ...result } = MIGRATED;
  begin().ended(result);
  t.match(violations, [/API servers stored 2 versions/]);
});

await tap.test("a forced run, and an object is encrypted with the old key", async (t) => {
  const { begin, store, violations, write } = world({ keyAtEnd: () => 2 });
  write("user", CRD_KEY, crd(["v1"]));
  store("a", "v1", { encryptionKey: 1 });
  const check = begin();
  store("new", "v1", { encryptionKey: 1 });
  check.ended(MIGRATED);
  t.match(violations, [/a is encrypted with key 1, not 2/]);
});

function keyOfNew(hash: string): number | undefined {
  return hash === "sha256:new" ? 2 : undefined;
}

/** What the check says where API servers write with these keys, and a run names this configuration. */
function reencryptedSaid(keysNow: readonly number[], encryption = "sha256:new"): readonly string[] {
  const options = { isForced: true, isReencryption: true, keyOf: keyOfNew, keysNow: () => new Set(keysNow) };
  const { begin, store, violations, write } = world(options);
  write("user", CRD_KEY, crd(["v1alpha1", "v1"]));
  store("a", "v1", { encryptionKey: keysNow[0] ?? 0 });
  const check = begin();
  check.told({ type: "progress", counts: NOTHING });
  store("late", "v1", { encryptionKey: 1 });
  const { storageVersion: _version, storedVersions: _versions, ...result } = MIGRATED;
  check.ended({ ...result, encryption });
  return violations;
}

await tap.test("a re-encryption is judged by the key of its configuration, up to the last object", async (t) => {
  t.same(reencryptedSaid([2]), [], "what was written later has any key");
  t.match(reencryptedSaid([1]), [/API servers wrote with 1 when/, /a is encrypted with key 1, not 2/]);
  t.match(reencryptedSaid([2, 1]), [/API servers wrote with 2 and 1 when/]);
  t.match(reencryptedSaid([2], "sha256:other"), [/sha256:other, which no API server had/]);
});

await tap.test("a forced run finds nothing to do", async (t) => {
  const { begin, violations, write } = world({ isForced: true });
  write("user", CRD_KEY, crd(["v1"]));
  begin().ended({ ...MIGRATED, outcome: "nothing-to-do" });
  t.match(violations, [/nothing-to-do, and it was forced/]);
});

await tap.test("events that etcd contradicts", async (t) => {
  const owner = JSON.stringify({ lease: "kube-system/a", identity: "ksvm-0_1", since: "now" });
  const frozen = { [MIGRATING_ANNOTATION]: "true", [OWNER_ANNOTATION]: owner };
  const guard = { name: "ksvm-freeze", kind: "policy" } as never;
  t.same(said({ type: "frozen", storageVersion: "v1", guard }, frozen, "ksvm-0"), []);
  t.match(said({ type: "frozen", storageVersion: "v1", guard }, {}, "ksvm-0"), [/no freeze of it/]);
  t.same(said({ type: "frozen", storageVersion: "v1", guard }, {}, "user"), [], "a user lifted it");
  t.match(said({ type: "frozen", storageVersion: "v1alpha1", guard }, frozen, "ksvm-0"), [/says frozen with v1alpha1/]);
  t.same(said({ type: "unfrozen" }, {}, "ksvm-0"), []);
  t.match(said({ type: "unfrozen" }, frozen, "ksvm-0"), [/its freeze is in place/]);
  t.match(said({ type: "pruned", storedVersions: ["v1"], removed: ["v1alpha1"] }, frozen, "ksvm-0"), [
    /says storedVersions is \[v1\], and it is \[v1alpha1,v1\]/,
    /it pruned v1alpha1, which storedVersions has/,
  ]);
});

/** The annotations of a freeze of the program. */
function frozenSince(since: string): object {
  const owner = JSON.stringify({ lease: "kube-system/a", identity: "ksvm-0_1", since });
  return { [MIGRATING_ANNOTATION]: "true", [OWNER_ANNOTATION]: owner };
}

/** What the check says of a run that begins again, after its CRD was written and etcd was restored as these say. */
function saidOfRestored(...steps: readonly ("freeze" | "freeze again" | "lift" | "back up" | "restore")[]) {
  const { begin, etcd, violations, write } = world();
  write("user", CRD_KEY, crd(["v1alpha1", "v1"]));
  let backup = etcd.snapshot();
  const check = begin();
  for (const step of steps) {
    if (step === "back up") backup = etcd.snapshot();
    else if (step === "restore") etcd.restore(backup);
    else write("ksvm-0", CRD_KEY, crd(["v1alpha1", "v1"], step === "lift" ? {} : frozenSince(step)));
  }
  check.told({ type: "startingAgain", reason: "an API server is missing" });
  return violations;
}

await tap.test("a freeze is its own to lift, unless a restore of etcd put it back", async (t) => {
  const left = [/its freeze is in place/];
  t.same(saidOfRestored("freeze", "lift", "restore"), []);
  t.same(saidOfRestored("freeze", "back up", "lift", "restore"), [], "it had lifted it");
  t.same(saidOfRestored("freeze", "back up", "lift", "restore", "restore"), []);
  t.match(saidOfRestored("freeze"), left);
  t.match(saidOfRestored("freeze", "back up", "restore"), left, "it had not lifted it");
  t.match(saidOfRestored("freeze", "back up", "lift", "freeze again", "restore"), left, "one of an earlier attempt");
  t.match(saidOfRestored("freeze", "back up", "lift", "restore", "freeze again"), left, "it froze the CRD anew");
});

await tap.test("counts that etcd contradicts", async (t) => {
  t.same(saidOf({ done: 2, migrated: 1, gone: 1 }), []);
  t.match(saidOf({ done: 3, migrated: 1, gone: 1 }), [/3 objects done, and 2/]);
  t.match(saidOf({ done: 2, migrated: 2 }), [/2 objects migrated, and it wrote 1/]);
  t.match(saidOf({ done: 2, gone: 2 }), [/2 objects gone, and 1 were deleted/]);
});

/** What the check says where a run ends because `v1` is no longer served, and the CRD was written as these say, from the second on after it began. */
function saidOfUnserved(
  served: readonly (readonly string[])[],
  { isAnother = false, ...options }: Pick<ToldCheckOptions, "servedNow"> & { readonly isAnother?: boolean } = {},
): readonly string[] {
  const { begin, violations, write } = world(options);
  let check: ToldCheck | undefined;
  for (const [nth, versions] of served.entries()) {
    const { spec, ...rest } = crd(["v1"]) as ModelObject & {
      readonly spec: { readonly versions: readonly { readonly name: string }[] };
    };
    const metadata = isAnother ? { ...rest.metadata, uid: `uid-${nth}` } : rest.metadata;
    write("user", CRD_KEY, {
      ...rest,
      metadata,
      spec: { ...spec, versions: spec.versions.map((one) => ({ ...one, served: versions.includes(one.name) })) },
    });
    check ??= begin();
  }
  check ??= begin();
  check.failed(
    'Cannot continue with "widgets.sim.example.com": version "v1" is no longer served: Cannot GET /apis: 404',
  );
  return violations;
}

await tap.test(
  "ToldCheck compares an unserved version with the CRD, or with the releases of the API servers",
  async (t) => {
    t.match(saidOfUnserved([["v1alpha1", "v1"]]), [/v1 is no longer served, and it was served all the time/]);
    t.same(saidOfUnserved([["v1"], ["v1alpha1"], ["v1"]]), [], "it was unserved for a moment");
    const twice = [["v1"], ["v1"]];
    t.match(saidOfUnserved(twice), [/served all the time/]);
    t.same(saidOfUnserved(twice, { isAnother: true }), [], "it was created again");
    t.same(saidOfUnserved([]), [], "there is no CRD");
    t.match(saidOfUnserved([], { servedNow: () => ["v1"] }), [/v1 is no longer served/]);
    const versions = [["v1"], ["v2"]];
    t.same(saidOfUnserved([], { servedNow: () => versions.shift() ?? [] }), [], "an upgrade took it away");
  },
);

const NO_OBJECTS = { current: 0, changed: 0, gone: 0, notShown: 0 };
const VERIFIED: Verification = {
  resource: "widgets.sim.example.com",
  outcome: "current",
  counts: NO_OBJECTS,
  apiServers: { servers: [] },
  watermark: "1",
  storageVersion: "v1",
  crd: "1/1",
  encryption: "config",
  changed: [],
  notShown: [],
};

/** What the check says of a verification that wrote one object and left another one as it is, in `version` and with `key`. */
function saidOfVerified(
  verification: Partial<Verification>,
  { key = 1, left = ["left"], version = "v1" } = {},
): readonly string[] {
  const { begin, store, violations, write } = world({ keyOf: () => 1, keysNow: () => new Set([1]) });
  write("user", CRD_KEY, crd(["v1"]));
  for (const name of left) store(name, version, { encryptionKey: key });
  const check = begin();
  store("repaired", "v1", { by: "ksvm-0", encryptionKey: 1 });
  check.told({ type: "progress", counts: NOTHING });
  store("late", "v1alpha1");
  const counts = { ...NO_OBJECTS, current: 1, changed: 1 };
  const changed = [{ name: "repaired", server: "https://a" }];
  check.verified({ ...VERIFIED, outcome: "changed", counts, changed, ...verification });
  return violations;
}

await tap.test("a verification, what it found, and what it says of all objects", async (t) => {
  t.same(saidOfVerified({}), []);
  t.match(saidOfVerified({ outcome: "current" }), [/it says current, and its counts are /]);
  t.match(saidOfVerified({ outcome: "current", counts: NO_OBJECTS, changed: [] }), [
    /it has 0 objects changed, and it wrote 1/,
  ]);
  const named = ["a", "b"].map((name) => ({ name, server: "https://a" }));
  t.match(saidOfVerified({ changed: named }), [/it names 2 objects that were not current, and it wrote 1/]);
  t.same(saidOfVerified({ changed: named.map((one) => ({ ...one, doubt: "no answer" as const })) }), []);
  t.match(saidOfVerified({ counts: { ...NO_OBJECTS, changed: 1, gone: 1 } }), [/1 objects gone, and 0 were deleted/]);
  t.match(saidOfVerified({}, { version: "v1alpha1" }), [/it says verified, and \S+\/left is stored as .*v1alpha1/]);
  t.match(saidOfVerified({}, { key: 2 }), [/it says verified, and \S+\/left is encrypted with key 2, not 1/]);
  t.match(saidOfVerified({ storageVersion: "v2" }), [/it says verified as v2, and the storage version of .* is v1/]);
  const refused = { ...NO_OBJECTS, changed: 1, notShown: 1 };
  t.same(saidOfVerified({ counts: refused }, { key: 2 }), [], "nothing is known of the other one");
  const two = { left: ["left", "right"] };
  t.match(saidOfVerified({ counts: refused }, { ...two, key: 2 }), [/\S+\/right is encrypted with key 2, not 1/]);
  t.match(saidOfVerified({ counts: refused }, { ...two, version: "v1alpha1" }), [/\S+\/right is stored as .*v1alpha1/]);
});
