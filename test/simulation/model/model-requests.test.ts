import tap from "tap";
import type { ModelObject } from "./model-object.ts";
import {
  APPLY,
  crd,
  CRDS,
  GROUP,
  MERGE,
  names,
  noOp,
  PATCH_QUERY,
  send,
  setStorage,
  setUp,
  type Status,
  widget,
} from "./small-cluster.ts";

await tap.test("a no-op apply rewrites an object once, and changes nothing that a user sees", async (t) => {
  const { cluster, server } = await setUp();
  await setStorage(server, "v2");
  const path = `${GROUP}/v2/namespaces/default/widgets/a`;
  const before = (await send(server, "GET", path)).body as ModelObject;
  t.equal(before.apiVersion, "example.com/v2");
  const first = await send(server, "PATCH", `${path}${PATCH_QUERY}`, noOp(before));
  const after = first.body as ModelObject;
  t.equal(first.status, 200);
  t.not(after.metadata.resourceVersion, before.metadata.resourceVersion);
  t.same({ ...after.metadata, resourceVersion: "" }, { ...before.metadata, resourceVersion: "" });
  t.equal(cluster.etcd.get("/registry/example.com/widgets/default/a")?.object.apiVersion, "example.com/v2");
  const { revision } = cluster.etcd;
  const second = await send(server, "PATCH", `${path}${PATCH_QUERY}`, noOp(after));
  t.equal((second.body as ModelObject).metadata.resourceVersion, after.metadata.resourceVersion);
  t.equal(cluster.etcd.revision, revision);
  const late = await send(server, "PATCH", `${path}${PATCH_QUERY}`, noOp(before));
  t.match(late, { status: 409, body: { reason: "Conflict", details: { name: "a", kind: "widgets" } } });
});

await tap.test("a write is stored by the handler that it was bound to", async (t) => {
  const { cluster, server } = await setUp();
  const other = cluster.server();
  const { promise, resolve } = Promise.withResolvers<void>();
  cluster.held = (point) => (point === "admitted" ? promise : undefined);
  const late = send(server, "POST", `${GROUP}/v1/namespaces/default/widgets`, { body: widget("late") });
  await new Promise(setImmediate);
  cluster.held = () => undefined;
  await setStorage(other, "v2");
  resolve();
  t.equal((await late).status, 201);
  t.equal(cluster.etcd.get("/registry/example.com/widgets/default/late")?.object.apiVersion, "example.com/v1");
});

await tap.test("discovery and the request handler follow a CRD apart from each other", async (t) => {
  const { cluster, server } = await setUp();
  const lagging = cluster.server({ isPrompt: false });
  await setStorage(server, "v2");
  const hash = async (): Promise<string> => {
    const { body } = await send(lagging, "GET", `${GROUP}/v1`);
    return (body as { resources: { storageVersionHash: string }[] }).resources[0]?.storageVersionHash ?? "";
  };
  const before = await hash();
  lagging.followDiscovery();
  t.not(await hash(), before);
  await send(lagging, "POST", `${GROUP}/v1/namespaces/default/widgets`, { body: widget("old") });
  lagging.followCrds();
  await send(lagging, "POST", `${GROUP}/v1/namespaces/default/widgets`, { body: widget("new") });
  const storedAs = (name: string): unknown =>
    cluster.etcd.get(`/registry/example.com/widgets/default/${name}`)?.object.apiVersion;
  t.same([storedAs("old"), storedAs("new")], ["example.com/v1", "example.com/v2"]);
});

await tap.test(
  "storedVersions names the storage version in the write that makes it one, and its versions stay",
  async (t) => {
    const { server } = await setUp();
    await setStorage(server, "v2");
    const { body } = await send(server, "GET", `${CRDS}/widgets.example.com`);
    t.same((body as { status: { storedVersions: unknown } }).status.storedVersions, ["v1", "v2"]);
    const { spec } = crd("v2", ["v2"]) as ModelObject;
    const refused = await send(server, "PATCH", `${CRDS}/widgets.example.com`, {
      body: { spec },
      "content-type": MERGE,
    });
    t.match(refused, {
      status: 422,
      body: { message: /status.storedVersions\[0\]: Invalid value: "v1": missing from spec.versions/ },
    });
  },
);

await tap.test("the continue token of a list is bound to its first page, and expires with its revision", async (t) => {
  const { cluster, server } = await setUp();
  for (const name of ["b", "c", "d"]) {
    await send(server, "POST", `${GROUP}/v1/namespaces/default/widgets`, { body: widget(name) });
  }
  const list = (query: string): ReturnType<typeof send> =>
    send(server, "GET", `${GROUP}/v1/widgets?limit=2${query}`, {
      accept: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    });
  const first = await list("");
  const { continue: token, remainingItemCount } = (
    first.body as { metadata: { continue: string; remainingItemCount: number } }
  ).metadata;
  t.equal(remainingItemCount, 2);
  await send(server, "DELETE", `${GROUP}/v1/namespaces/default/widgets/c`);
  t.same(
    [names(first), names(await list(`&continue=${token}`))],
    [
      ["a", "b"],
      ["c", "d"],
    ],
  );
  cluster.etcd.compact(cluster.etcd.revision);
  const gone = await list(`&continue=${token}`);
  t.match(gone, { status: 410, body: { reason: "Expired" } });
  t.same(names(await list(`&continue=${(gone.body as Status).metadata.continue}`)), ["d"]);
});

await tap.test("a watch tells what comes, and refuses what the watch cache has forgotten", async (t) => {
  const { cluster, server } = await setUp();
  const lines: string[] = [];
  const open = async (query: string): Promise<void> => {
    const { answer } = await send(server, "GET", `${GROUP}/v2/widgets?watch=true&allowWatchBookmarks=true${query}`);
    if (typeof answer.body === "function")
      answer.body({ event: (line) => lines.push(line), end: () => lines.push("end") });
  };
  await open(`&resourceVersion=${cluster.etcd.revision}&fieldSelector=metadata.name=b`);
  for (const name of ["b", "c"]) {
    await send(server, "POST", `${GROUP}/v1/namespaces/default/widgets`, { body: widget(name) });
  }
  await send(server, "DELETE", `${GROUP}/v1/namespaces/default/widgets/b`);
  t.same(
    lines.map((line) => (JSON.parse(line) as { type: string }).type),
    ["ADDED", "DELETED"],
  );
  t.match(lines[1], new RegExp(`"resourceVersion":"${cluster.etcd.revision}"`));
  lines.length = 0;
  server.forgetEvents();
  t.same(lines, ["end"]);
  lines.length = 0;
  await open("&resourceVersion=2");
  t.match(lines, [/"type":"ERROR".*"reason":"Expired","code":410/, "end"]);
});

await tap.test("a key rotation is written by a no-op write, and read by who has the key", async (t) => {
  const { cluster, server } = await setUp();
  const resources = new Set(["widgets.example.com"]);
  server.encryption = { writes: 1, reads: new Set([0, 1]), resources };
  const path = `${GROUP}/v1/namespaces/default/widgets/a`;
  const before = (await send(server, "GET", path)).body as ModelObject;
  await send(server, "PATCH", `${path}${PATCH_QUERY}`, noOp(before, "v1"));
  t.equal(cluster.etcd.get("/registry/example.com/widgets/default/a")?.encryptionKey, 1);
  t.equal((await send(cluster.server(), "GET", path)).status, 500);
});

await tap.test(
  "an apply owns what it sets, takes back what it no longer sets, and conflicts with others",
  async (t) => {
    const { server } = await setUp();
    const path = `${GROUP}/v1/namespaces/default/widgets/z`;
    const apply = (spec: object, query: string): ReturnType<typeof send> =>
      send(server, "PATCH", `${path}?${query}`, { body: { ...widget("z"), spec }, "content-type": APPLY });
    t.equal((await apply({ a: 1, b: 1 }, "fieldManager=one")).status, 201);
    t.match(await apply({ a: 2 }, "fieldManager=two"), {
      status: 409,
      body: { message: /^Apply failed with 1 conflict: conflict with "one": .spec.a$/ },
    });
    t.same(((await apply({ a: 2 }, "fieldManager=two&force=true")).body as ModelObject)["spec"], { a: 2, b: 1 });
    t.same(((await apply({}, "fieldManager=one")).body as ModelObject)["spec"], { a: 2 });
  },
);
