import type { ServerResponse } from "node:http";
import tap from "tap";
import { ApiClient } from "../../src/kube/client.ts";
import { isUnserved } from "../../src/kube/absent.ts";
import { failureKindOf } from "../../src/kube/failure.ts";
import { CRDS, STORAGE_VERSIONS } from "../../src/kube/resources.ts";
import { inTreeMigrations } from "../../src/in-tree/in-tree-migrations.ts";
import { unfreeze } from "../../src/freeze/freeze.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { FakeClock } from "../fake-clock.ts";
import { groupList, resourceList, sendJson, sendStatus, startServer } from "./local-server.ts";

const NAME = "widgets.example.com";
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
const IN_TREE = "storagemigration.k8s.io/v1beta1";

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

await tap.test("isUnserved() does not ask about other failures than a 404", async (t) => {
  const server = await startServer(t, (_, response) => sendStatus(response, 503));
  const client = new ApiClient(server.transport());
  await t.rejects(client.findIfServed(STORAGE_VERSIONS, { name: "a" }), { code: "ApiRequestFailed", name: "ApiError" });
  t.equal(await isUnserved(client.transport, STORAGE_VERSIONS, new Error("another")), false);
  t.equal(server.seen.length, 1);
});

await tap.test("inTreeMigrations() does not take a proxy's 404 for a group that is not served", async (t) => {
  let lists: Readonly<Record<string, unknown>> = { "/apis": groupList("apps/v1") };
  const server = await startServer(t, ({ path }, response) =>
    path in lists ? sendJson(response, 200, lists[path]) : response.writeHead(404).end("404 page not found\n"),
  );
  const client = new ApiClient(server.transport());
  t.same(await inTreeMigrations(client), [], "the group is not served");
  lists = { "/apis": groupList("apps/v1", IN_TREE) };
  await t.rejects(inTreeMigrations(client), DOUBTFUL);
  lists = {};
  await t.rejects(inTreeMigrations(client), DOUBTFUL);
});
