// CRDs from texts such as `v1 v2:ab+`, objects that are stored under them, and what holds once a file is applied.
import type { Test } from "tap";
import { messageOf } from "../../src/errors.ts";
import { whose } from "../../src/kube/errors.ts";
import { CRDS, type KubeObject, storageVersion } from "../../src/kube/objects.ts";
import { type Cluster, eventually, signal } from "../engine/cluster.ts";
import { type Versions, versionsIn } from "../inventory/pairs.ts";
import { GROUP, type TestKind } from "./crd-fixture.ts";

/** A CRD of a kind. `metadata` is laid over its own. */
export function manifestOf(kind: TestKind, text: Versions, conversion: object = { strategy: "None" }, metadata = {}) {
  const manifest = kind.manifest({ versions: [], storage: "" });
  return {
    ...manifest,
    metadata: { ...manifest.metadata, ...metadata },
    spec: { ...manifest.spec, versions: versionsIn(text), conversion },
  };
}

/** Applies a CRD, and stores objects under it. */
export async function live(engine: Cluster, kind: TestKind, text: Versions, conversion?: object): Promise<void> {
  await applyCrd(engine, kind, manifestOf(kind, text, conversion));
  await storeObjects(engine, kind, text);
}

export async function applyCrd({ client }: Cluster, { name }: TestKind, manifest: object): Promise<void> {
  await client.apply(`${CRDS}/${name}`, manifest, { fieldManager: "their-gitops", signal });
}

/** Stores two objects with all fields in the storage version: `v1-0` and `v1-1`. */
export async function storeObjects(engine: Cluster, kind: TestKind, text: Versions): Promise<void> {
  const stored = versionsIn(text).find(({ storage }) => storage);
  if (stored === undefined) throw new Error(`${text} has no storage version`);
  const { name: version, schema } = stored;
  const fields = Object.keys(schema.openAPIV3Schema.properties.spec.properties);
  const names = [`${version}-0`, `${version}-1`];
  await engine.untilServed(kind, version);
  await eventually(async () => {
    for (const name of names) {
      await applyObject(engine, kind, name, version, Object.fromEntries(fields.map((field) => [field, field])));
    }
    if ((await engine.storedAs(kind))[version] === names.length) return true;
    // The API server goes on to store in the version of before for a moment.
    for (const name of names) await engine.client.delete(engine.path(kind, name, version), { signal });
    return false;
  }, `objects are stored in ${version}`);
}

/** A client that applies server-side, as Flux and Argo CD do. */
export function applyObject(
  engine: Cluster,
  kind: TestKind,
  name: string,
  version: string,
  spec: object,
  dryRun = false,
): Promise<KubeObject> {
  const body = { apiVersion: `${GROUP}/${version}`, kind: kind.kind, metadata: { name, namespace: "default" }, spec };
  return engine.client.apply(engine.path(kind, name, version), body, { fieldManager: "applier", dryRun, signal });
}

type Item = KubeObject & { readonly spec: { readonly a?: string } };

/**
 * What the file says is there, and every object can be read in each served version, and applied.
 * @param isMigrated whether objects are stored in the storage version alone
 */
export async function assertArrived(
  t: Test,
  engine: Cluster,
  kind: TestKind,
  { spec }: ReturnType<typeof manifestOf>,
  { dropped, isMigrated = true }: { readonly dropped: readonly string[]; readonly isMigrated?: boolean },
): Promise<void> {
  const crd = await engine.crd(kind);
  const { conversion, versions } = crd.spec;
  const wanted = { conversion: spec.conversion, versions: spec.versions };
  // What follows would be waited for in vain.
  if (!t.same({ conversion, versions }, wanted, "the CRD is what the file says")) return;
  t.notMatch(JSON.stringify(crd.metadata), /ksvm-upgrade|ksvm\.sigs/, "nothing of it is owned by ksvm");

  const storage = storageVersion(crd);
  const storedVersions = crd.status?.storedVersions ?? [];
  const counts = await engine.storedAs(kind);
  const stored = Object.keys(counts);
  const unlisted = stored.filter((version) => !storedVersions.includes(version));
  t.same(unlisted, [], "storedVersions lists every version that objects are stored in");
  if (isMigrated) t.same({ stored, storedVersions }, { stored: [storage], storedVersions: [storage] });

  const list = (version: string) =>
    engine.client.list<Item>(`/apis/${GROUP}/${version}/${kind.plural}`, { signal }).then(({ items }) => items, whose);
  const names = versions.map(({ name }) => name);
  const unserved = versions.filter(({ served }) => !served).map(({ name }) => name);
  for (const version of [...dropped, ...unserved]) {
    await eventually(async () => (await list(version)) === "gone", `${version} is not served`);
  }
  const expected = Object.values(counts).flatMap((count) => Array.from({ length: count }, () => "a"));
  const served = names.filter((name) => !unserved.includes(name));
  let items: readonly Item[] = [];
  for (const version of served) {
    await eventually(async () => {
      const listed = await list(version);
      items = Array.isArray(listed) ? (listed as readonly Item[]) : [];
      return Array.isArray(listed);
    }, `${version} is served`);
    t.same(
      items.map((item) => item.spec.a),
      expected,
      `every object has its field in ${version}`,
    );
  }
  const applied = served.includes(storage) ? storage : served[0];
  for (const { metadata } of items) {
    const named = (metadata.managedFields ?? []).map(({ apiVersion }) => apiVersion?.split("/").at(-1) ?? "");
    const gone = named.filter((version) => !names.includes(version));
    t.same(gone, [], `managedFields of ${metadata.name} name versions of the CRD`);
    const answer = applyObject(engine, kind, metadata.name, applied ?? "", { a: "new" });
    t.equal(await answer.then(() => "", messageOf), "", `${metadata.name} can be applied`);
  }
}
