import type { ServerResponse } from "node:http";
import tap from "tap";
import { endpointUrls, identityLeases } from "../../../src/old/apiservers/control-plane-objects.ts";
import { findReplicas } from "../../../src/certs/replicas.ts";
import { readSecret, writeSecret } from "../../../src/certs/secret-store.ts";
import { unfreeze } from "../../../src/old/freeze/freeze.ts";
import { ApiClient } from "../../../src/old/kube/client.ts";
import { failureKindOf } from "../../../src/old/kube/failure.ts";
import { listNamed } from "../../../src/old/kube/list-named.ts";
import { CRDS, LEASES, MERGE_PATCH, STORAGE_VERSIONS } from "../../../src/old/kube/resources.ts";
import { findCrd } from "../../../src/resources/read-crd.ts";
import { Retrier } from "../../../src/old/retry/retrier.ts";
import { CRD_FIELDS } from "../../../src/trigger/crd-facts.ts";
import { FakeClock } from "../../fake-clock.ts";
import { groupList, resourceList, sendJson, sendStatus, startServer } from "./local-server.ts";

const NAME = "widgets.example.com";
const OBJECT = { metadata: { name: NAME } };

/** What a proxy may send; a real API server cannot be made to. The first one also is an answer cut off before it began. */
const answers: readonly [name: string, text: string][] = [
  ["nothing", ""],
  ["null", "null"],
  ["an empty object", "{}"],
  ["metadata that are null", '{"metadata":null}'],
  ["a Status", '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}'],
  ["another object", '{"metadata":{"name":"gadgets.example.com"}}'],
];

for (const [name, text] of answers) {
  await tap.test(`A GET of one object concludes nothing from a 200 that is ${name}`, async (t) => {
    const server = await startServer(t, (_, response) => response.writeHead(200).end(text));
    const client = new ApiClient(server.transport());
    const reads: Readonly<Record<string, () => Promise<unknown>>> = {
      get: () => client.get(CRDS, { name: NAME }),
      find: () => client.find(CRDS, { name: NAME }),
      findIfServed: () => client.findIfServed(CRDS, { name: NAME }),
      findMetadata: () => client.findMetadata(CRDS, { name: NAME }),
      findCrd: () => findCrd(client, NAME),
      readSecret: () => readSecret(client, { namespace: "ns", name: NAME }, new AbortController().signal),
    };
    for (const [read, send] of Object.entries(reads)) {
      await t.rejects(send(), { name: "DoubtfulAnswer", code: "ApiRequestFailed" }, read);
    }
    // Read as it arrives: what is no JSON counts as broken off.
    await t.rejects(client.findFields(CRDS, { name: NAME }, CRD_FIELDS), {
      name: text === "" ? "TransportError" : "DoubtfulAnswer",
    });
  });
}

await tap.test("A GET of one object takes the object", async (t) => {
  const server = await startServer(t, (_, response) => response.writeHead(200).end(JSON.stringify(OBJECT)));
  const client = new ApiClient(server.transport());
  t.same(await client.get(CRDS, { name: NAME }), OBJECT);
  t.same(await client.find(CRDS, { name: NAME }), OBJECT);
  t.same(await client.findMetadata(CRDS, { name: NAME }), OBJECT);
  t.same(await client.findFields(CRDS, { name: NAME }, CRD_FIELDS), OBJECT);
  t.same(await findCrd(client, NAME), OBJECT);
});

const PATCH = { type: MERGE_PATCH, body: {} };

for (const [name, text] of [...answers, ["what was sent", JSON.stringify(OBJECT)]] as const) {
  await tap.test(`a write of one object concludes nothing from a 200 that is ${name}`, async (t) => {
    const server = await startServer(t, (_, response) => response.writeHead(200).end(text));
    const client = new ApiClient(server.transport());
    const { signal } = new AbortController();
    const ref = { namespace: "ns", name: NAME };
    const before = { metadata: { ...ref, uid: "1", resourceVersion: "1" }, data: {} };
    const writes: Readonly<Record<string, () => Promise<unknown>>> = {
      create: () => client.create(CRDS, OBJECT),
      patch: () => client.patch(CRDS, { name: NAME }, PATCH),
      "patch of the status": () => client.patch(CRDS, { name: NAME }, PATCH, { subresource: "status" }),
      writeSecret: () => writeSecret(client, ref, { before, change: { data: {} } }, signal),
    };
    for (const [write, send] of Object.entries(writes)) {
      await t.rejects(send(), { name: "DoubtfulAnswer", code: "ApiRequestFailed" }, write);
    }
  });
}

await tap.test("a write whose name the API server makes concludes nothing from an answer without one", async (t) => {
  let text = "{}";
  const server = await startServer(t, (_, response) => response.writeHead(200).end(text));
  const client = new ApiClient(server.transport());
  const create = (): Promise<unknown> => client.create(LEASES, { metadata: { generateName: "a-", namespace: "ns" } });
  await t.rejects(create(), { name: "DoubtfulAnswer" });
  text = '{"metadata":{"generateName":"a-"}}';
  await t.rejects(create(), { name: "DoubtfulAnswer" });
  text = '{"metadata":{"name":"a-x","resourceVersion":"1"}}';
  t.match(await create(), { metadata: { name: "a-x" } });
});

await tap.test("a DELETE concludes nothing from a 200 that does not say that the object is deleted", async (t) => {
  const success = { kind: "Status", apiVersion: "v1", metadata: {}, status: "Success" };
  let text = "";
  const server = await startServer(t, (_, response) => response.writeHead(200).end(text));
  const client = new ApiClient(server.transport());
  for (const [name, said] of [
    ...answers,
    ["of another object", JSON.stringify({ ...success, details: { name: "b" } })],
  ] as const) {
    text = said;
    await t.rejects(client.delete(CRDS, { name: NAME }), { name: "DoubtfulAnswer", code: "ApiRequestFailed" }, name);
  }
  text = JSON.stringify({ ...success, details: { name: NAME, kind: "customresourcedefinitions", uid: "1" } });
  await client.delete(CRDS, { name: NAME });
  text = JSON.stringify(OBJECT);
  await client.delete(CRDS, { name: NAME });
});

for (const method of ["GET", "POST", "PUT", "PATCH", "DELETE"] as const) {
  await tap.test(`Transport.request() does not take an empty answer to a ${method}`, async (t) => {
    const server = await startServer(t, (_, response) => response.end());
    await t.rejects(server.transport().request({ method, path: "/x" }), {
      name: "DoubtfulAnswer",
      message: `Cannot ${method} /x: the answer of ${server.url} is empty`,
    });
  });
}

await tap.test("A list that is asked for whole concludes nothing from one page of it", async (t) => {
  // What a proxy may send: an API server gives pages only to those who ask for them.
  const server = await startServer(t, (_, response) =>
    sendJson(response, 200, { kind: "List", metadata: { continue: "abc" }, items: [] }),
  );
  const client = new ApiClient(server.transport());
  const { signal } = new AbortController();
  const doubtful = { name: "DoubtfulAnswer", message: /one page of several/ };
  await t.rejects(client.list(CRDS), doubtful);
  await t.rejects(identityLeases(client, new FakeClock(), signal), doubtful);
  await t.rejects(endpointUrls(client, signal), doubtful);
  await t.rejects(findReplicas(client, { namespace: "ns", service: "ksvm" }, signal), doubtful);
});

const CONFIG_MAPS = { group: "", version: "v1", resource: "configmaps" };
const a = { metadata: { name: "a" } };
const b = { metadata: { name: "b" } };

// Stand-ins, because a real API server gives none of these answers.
async function answered(t: Parameters<typeof startServer>[0], body: unknown) {
  const server = await startServer(t, (_, response) => sendJson(response, 200, body));
  const answer = listNamed(server.transport(), CONFIG_MAPS, { name: "b", namespace: "ns" });
  return { answer, server };
}

await tap.test("listNamed() asks for a consistent list of one name", async (t) => {
  const { answer, server } = await answered(t, {
    kind: "ConfigMapList",
    metadata: { resourceVersion: "7" },
    items: [b],
  });
  t.same(await answer, { object: b, resourceVersion: "7" });
  t.equal(server.seen[0]?.path, "/api/v1/namespaces/ns/configmaps");
  t.same([...(server.seen[0]?.query ?? [])], [["fieldSelector", "metadata.name=b"]]);
});

await tap.test("listNamed() says that an object is absent where the list", async (t) => {
  for (const items of [[], null]) {
    const { answer } = await answered(t, { kind: "ConfigMapList", metadata: { resourceVersion: "7" }, items });
    t.same(await answer, { object: undefined, resourceVersion: "7" }, `has ${JSON.stringify(items)} for its items`);
  }
});

await tap.test("listNamed() finds the object where an API server ignores the field selector", async (t) => {
  const { answer } = await answered(t, { kind: "ConfigMapList", metadata: {}, items: [a, b] });
  t.same(await answer, { object: b, resourceVersion: "" });
});

await tap.test("listNamed() proves nothing by an answer that", async (t) => {
  const answers: Readonly<Record<string, unknown>> = {
    "is an object": { kind: "ConfigMap", metadata: {} },
    "is a Status": { kind: "Status", metadata: {} },
    "is empty": {},
    "is no object": "nothing here",
    "is one page of several": { kind: "ConfigMapList", metadata: { continue: "more" }, items: [a] },
    "has no items": { kind: "ConfigMapList", metadata: {} },
    "has no list of items": { kind: "ConfigMapList", metadata: {}, items: {} },
  };
  for (const [name, body] of Object.entries(answers)) {
    const { answer } = await answered(t, body);
    await t.rejects(answer, { code: "ApiRequestFailed" }, name);
  }
});

const OWNER = { lease: "kube-system/l", identity: "host_1", since: "2026-01-01T00:00:00Z" };
const NOT_FOUND = { reason: "NotFound", message: `customresourcedefinitions.apiextensions.k8s.io "${NAME}" not found` };

/** What else answers 404, in the words of the real ones. Stand-ins: no API server answers like this on demand. */
const OTHER_ANSWERS: Readonly<Record<string, (response: ServerResponse) => unknown>> = {
  "comes from nginx": (response) =>
    response.writeHead(404, { "content-type": "text/html" }).end("<html><h1>404 Not Found</h1><hr>nginx</html>"),
  "comes from an API server that does not serve the path": (response) =>
    response.writeHead(404, { "content-type": "text/plain" }).end("404 page not found\n"),
  "comes from an API server that does not serve the resource": (response) =>
    sendStatus(response, 404, {
      reason: "NotFound",
      message: "the server could not find the requested resource",
      details: {},
    }),
  "is about another object": (response) =>
    sendStatus(response, 404, {
      ...NOT_FOUND,
      message: 'namespaces "x" not found',
      details: { name: "x", kind: "namespaces" },
    }),
  "comes from an admission webhook": (response) =>
    sendStatus(response, 404, {
      reason: "NotFound",
      message: `admission webhook "a.example.com" denied the request: "${NAME}" not found`,
      details: { name: NAME },
    }),
  "has another reason": (response) => sendStatus(response, 404, { reason: "Gone", details: { name: NAME } }),
};

await tap.test(
  "find(), findMetadata(), delete() and unfreeze() take an object for absent where the API server names it",
  async (t) => {
    const server = await startServer(t, (_, response) =>
      sendStatus(response, 404, { ...NOT_FOUND, details: { name: NAME } }),
    );
    const client = new ApiClient(server.transport());
    t.equal(await client.find(CRDS, { name: NAME }), undefined);
    t.equal(await client.findMetadata(CRDS, { name: NAME }), undefined);
    await t.resolves(client.delete(CRDS, { name: NAME }));
    await t.rejects(client.delete(CRDS, { name: NAME }, { mustExist: true }), { code: "NotFound" });
    const retrier = new Retrier({ clock: new FakeClock(), random: () => 0 });
    const { signal } = new AbortController();
    t.equal(await unfreeze({ client, retrier, signal }, NAME, OWNER), false, "its freeze went with it");
  },
);

for (const [title, answer] of Object.entries(OTHER_ANSWERS)) {
  await tap.test(`A 404 says nothing about an object where it ${title}`, async (t) => {
    const server = await startServer(t, (_, response) => answer(response));
    const client = new ApiClient(server.transport());
    await t.rejects(client.find(CRDS, { name: NAME }), { code: "NotFound" });
    await t.rejects(client.findMetadata(CRDS, { name: NAME }), { code: "NotFound" });
    await t.rejects(client.delete(CRDS, { name: NAME }), { code: "NotFound" });
    const retrier = new Retrier({ clock: new FakeClock(), random: () => 0 });
    const { signal } = new AbortController();
    await t.rejects(unfreeze({ client, retrier, signal }, NAME, OWNER), { code: "NotFound" }, "nothing was lifted");
  });
}

const DOUBTFUL = { code: "ApiRequestFailed", name: "DoubtfulAnswer" };
const GROUP = "internal.apiserver.k8s.io/v1alpha1";

/** What the lists of an API server say next to a 404, and whether that proves that StorageVersions are not served. */
const PROOFS: readonly (readonly [title: string, lists: Readonly<Record<string, unknown>>, isProven: boolean])[] = [
  ["the list of groups names others", { "/apis": groupList("apps/v1") }, true],
  [
    "the list of groups names another version of the group",
    { "/apis": groupList("internal.apiserver.k8s.io/v1") },
    true,
  ],
  [
    "the list of resources names others",
    { "/apis": groupList(GROUP), [`/apis/${GROUP}`]: resourceList(GROUP, "others") },
    true,
  ],
  [
    "both lists name it",
    { "/apis": groupList(GROUP), [`/apis/${GROUP}`]: resourceList(GROUP, "storageversions") },
    false,
  ],
  ["the list of resources is empty", { "/apis": groupList(GROUP), [`/apis/${GROUP}`]: resourceList(GROUP) }, false],
  ["the list of resources is a 404, too", { "/apis": groupList(GROUP) }, false],
  ["the list of groups is empty", { "/apis": groupList() }, false],
  ["the list of groups is something else", { "/apis": { status: "ok" } }, false],
  ["the list of groups is a 404, too", {}, false],
];

for (const [title, lists, isProven] of PROOFS) {
  await tap.test(`A 404 for a whole resource is judged by what the API server lists: ${title}`, async (t) => {
    const server = await startServer(t, ({ path }, response) =>
      path in lists
        ? sendJson(response, 200, lists[path])
        : response.writeHead(404, { "content-type": "text/plain" }).end("404 page not found\n"),
    );
    const client = new ApiClient(server.transport());
    const found = client.findIfServed(STORAGE_VERSIONS, { name: "apps.deployments" });
    if (isProven) {
      t.equal(await found, undefined);
    } else {
      const error: unknown = await found.catch((thrown: unknown) => thrown);
      t.match(error, DOUBTFUL);
      t.equal(failureKindOf(error), "transient", "it is asked again");
    }
  });
}
