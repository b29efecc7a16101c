import tap from "tap";
import { EtcdError, SimEtcd } from "./etcd.ts";
import type { EtcdEntry } from "./timeline.ts";
import type { ModelObject } from "./model-object.ts";

function objectNamed(name: string, field = ""): ModelObject {
  return { apiVersion: "v1", kind: "ConfigMap", metadata: { name }, field };
}

function write(etcd: SimEtcd, key: string, field = ""): EtcdEntry {
  const entry = etcd.put(key, { object: objectNamed(key, field) }, etcd.get(key)?.modRevision ?? 0);
  if (entry === undefined) throw new Error("expected the write to pass");
  return entry;
}

await tap.test("put() takes one revision, and only if the key is as expected", async (t) => {
  const etcd = new SimEtcd();
  t.equal(etcd.revision, 1);
  t.match(write(etcd, "/a/1"), { createRevision: 2, modRevision: 2 });
  t.equal(etcd.put("/a/1", { object: objectNamed("x") }, 0), undefined);
  t.match(write(etcd, "/a/1", "x"), {
    createRevision: 2,
    modRevision: 3,
    text: JSON.stringify(objectNamed("/a/1", "x")),
  });
  t.equal(etcd.revision, 3);
});

await tap.test("range() reads the state of a revision, deleted keys included, in the order of the keys", async (t) => {
  const etcd = new SimEtcd();
  for (const key of ["/a/2", "/a/1", "/b/1", "/a/3"]) write(etcd, key);
  const { revision } = etcd;
  etcd.delete("/a/2", 2);
  t.same(
    etcd.range("/a/").map(({ key }) => key),
    ["/a/1", "/a/3"],
  );
  t.same(
    etcd.range("/a/", revision).map(({ key }) => key),
    ["/a/1", "/a/2", "/a/3"],
  );
  t.same(
    etcd.range("/a/", revision, "/a/1\0").map(({ key }) => key),
    ["/a/2", "/a/3"],
  );
  etcd.compact(revision + 1);
  t.throws(() => etcd.range("/a/", revision), new EtcdError("etcdserver: mvcc: required revision has been compacted"));
});

await tap.test("watch() tells what came since a revision, and of what follows", async (t) => {
  const etcd = new SimEtcd();
  write(etcd, "/a/1");
  write(etcd, "/a/2");
  const seen: string[] = [];
  const end = etcd.watch("/a/", 3, ({ key, isDeleted }) => seen.push(`${isDeleted ? "-" : ""}${key}`));
  write(etcd, "/b/1");
  etcd.delete("/a/1", 2);
  end();
  write(etcd, "/a/4");
  t.same(seen, ["/a/2", "-/a/1"]);
});

await tap.test("restore() gives the revisions after the snapshot a second time", async (t) => {
  const etcd = new SimEtcd();
  write(etcd, "/a/1", "kept");
  const snapshot = etcd.snapshot();
  const undone = etcd.timeline;
  write(etcd, "/a/1", "undone");
  write(etcd, "/a/2");
  etcd.restore(snapshot);
  t.equal(etcd.revision, 2);
  t.equal(etcd.get("/a/1")?.object["field"], "kept");
  t.equal(etcd.get("/a/2"), undefined);
  t.equal(write(etcd, "/a/1", "other").modRevision, 3);
  t.equal(undone.get("/a/1")?.object["field"], "undone");
});
