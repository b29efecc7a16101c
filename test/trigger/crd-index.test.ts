import tap from "tap";
import type { CustomResourceDefinition } from "../../src/api/crd.ts";
import { CrdIndex, type CrdReader } from "../../src/trigger/crd-index.ts";

interface Fake {
  readonly reader: CrdReader;
  /** Names of the CRDs that were read whole since the last call. */
  reads(): readonly string[];
  put(name: string, resourceVersion: string, storedVersions: readonly string[], generation?: number): void;
  delete(name: string): void;
}

function crdOf(
  name: string,
  version: { readonly resourceVersion: string; readonly generation: number },
  storedVersions: readonly string[],
): CustomResourceDefinition {
  const [plural = "", ...group] = name.split(".");
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name, uid: `uid-${name}`, ...version },
    spec: {
      group: group.join("."),
      names: { plural, kind: plural },
      scope: "Cluster",
      versions: [{ name: "v1", served: true, storage: true }],
    },
    status: { storedVersions },
  } as unknown as CustomResourceDefinition;
}

/** Two CRDs a page. */
function fake(): Fake {
  const crds = new Map<string, CustomResourceDefinition>();
  const reads: string[] = [];
  const listed = (name: string): unknown => {
    const { metadata, status } = crds.get(name) ?? {};
    return metadata && { ...metadata, digest: JSON.stringify(status) };
  };
  const reader = {
    findFields: (_: unknown, { name }: { name: string }) => {
      reads.push(name);
      return Promise.resolve(crds.get(name));
    },
    findListed: (_: unknown, { name }: { name: string }) => Promise.resolve(listed(name)),
    listPage: (_: unknown, { continueToken = "0" }: { continueToken?: string }) => {
      const from = Number(continueToken);
      const isLast = from + 2 >= crds.size;
      const items = [...crds.keys()].slice(from, from + 2).map(listed);
      return Promise.resolve({ items, resourceVersion: "1", ...(isLast ? {} : { continueToken: String(from + 2) }) });
    },
  } as unknown as CrdReader;
  return {
    reader,
    reads: () => reads.splice(0),
    put: (name, resourceVersion, storedVersions, generation = 1) =>
      crds.set(name, crdOf(name, { resourceVersion, generation }, storedVersions)),
    delete: (name) => crds.delete(name),
  };
}

const { signal } = new AbortController();

await tap.test("CrdIndex reads a whole CRD only where its resourceVersion is another one", async (t) => {
  const api = fake();
  api.put("as.example.com", "1", ["v1"]);
  const index = new CrdIndex(api.reader);
  t.match(await index.find("as.example.com", signal), { storedVersions: ["v1"] });
  t.same(api.reads(), ["as.example.com"]);
  t.match(await index.find("as.example.com", signal), { storedVersions: ["v1"] });
  t.same(api.reads(), []);
  api.put("as.example.com", "2", ["v0", "v1"]);
  t.match(await index.find("as.example.com", signal), { storedVersions: ["v0", "v1"] });
  t.same(api.reads(), ["as.example.com"]);
});

await tap.test("CrdIndex.all() gives every page, reads what changed, and forgets what is gone", async (t) => {
  const api = fake();
  for (const name of ["as.x.io", "bs.x.io", "cs.x.io"]) {
    api.put(name, "1", ["v1"]);
  }
  const index = new CrdIndex(api.reader);
  t.same([...(await index.all(signal)).keys()], ["as.x.io", "bs.x.io", "cs.x.io"]);
  t.same(api.reads(), ["as.x.io", "bs.x.io", "cs.x.io"]);
  api.put("cs.x.io", "2", ["v1"]);
  api.delete("as.x.io");
  t.same([...(await index.all(signal)).keys()], ["bs.x.io", "cs.x.io"]);
  t.same(api.reads(), ["cs.x.io"]);
  // As after an etcd that was restored: the same resourceVersion says nothing about one that was gone.
  api.put("as.x.io", "1", ["v1"]);
  await index.all(signal);
  t.same(api.reads(), ["as.x.io"]);
});

await tap.test("CrdIndex.find() gives undefined for a CRD that is gone, and reads one that came back", async (t) => {
  const api = fake();
  api.put("as.x.io", "1", ["v1"]);
  const index = new CrdIndex(api.reader);
  await index.find("as.x.io", signal);
  api.delete("as.x.io");
  t.equal(await index.find("as.x.io", signal), undefined);
  api.put("as.x.io", "1", ["v1"]);
  t.ok(await index.find("as.x.io", signal));
  t.same(api.reads(), ["as.x.io", "as.x.io"]);
});

await tap.test(
  "CrdIndex reads a CRD again that has an earlier resourceVersion after a restore, in another state",
  async (t) => {
    const api = fake();
    api.put("as.x.io", "7", ["v1"], 3);
    const index = new CrdIndex(api.reader);
    await index.all(signal);
    t.same(api.reads(), ["as.x.io"]);
    await index.find("as.x.io", signal);
    t.same(api.reads(), []);
    api.put("as.x.io", "7", ["v1"], 1);
    await index.find("as.x.io", signal);
    t.same(api.reads(), ["as.x.io"], "of another generation");
    api.put("as.x.io", "7", ["v0", "v1"], 1);
    t.match((await index.all(signal)).get("as.x.io"), { storedVersions: ["v0", "v1"] }, "with another digest");
    t.same(api.reads(), ["as.x.io"]);
  },
);
