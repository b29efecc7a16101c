import type { ServerResponse } from "node:http";
import tap from "tap";
import { ApiClient } from "../../src/kube/client.ts";
import { CRDS } from "../../src/kube/resources.ts";
import { unfreeze } from "../../src/migrator/freeze.ts";
import { Retrier } from "../../src/migrator/retrier.ts";
import { FakeClock } from "../fake-clock.ts";
import { sendStatus, startServer } from "./local-server.ts";

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
