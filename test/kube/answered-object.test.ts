import tap from "tap";
import { readSecret, writeSecret } from "../../src/certs/secret-store.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { isAllowed } from "../../src/kube/access.ts";
import { CRDS, LEASES, MERGE_PATCH } from "../../src/kube/resources.ts";
import { heldLeaseIn } from "../../src/lease/lease-write.ts";
import { findCrd } from "../../src/resources/read-crd.ts";
import { CRD_FIELDS } from "../../src/trigger/crd-facts.ts";
import { startServer } from "./local-server.ts";

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

await tap.test("a dry-run of a write takes an object that has no resourceVersion", async (t) => {
  const server = await startServer(t, (_, response) => response.writeHead(200).end(JSON.stringify(OBJECT)));
  const client = new ApiClient(server.transport());
  t.same(await client.create(CRDS, OBJECT, { dryRun: true }), OBJECT);
  t.same(await client.patch(CRDS, { name: NAME }, PATCH, { dryRun: true }), OBJECT);
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

await tap.test("heldLeaseIn() takes a Lease that shows its holder alone", (t) => {
  const lease = { metadata: { name: "a", uid: "1", resourceVersion: "2" }, spec: { holderIdentity: "me" } };
  t.equal(heldLeaseIn(lease, "a", "me"), lease);
  for (const spec of [undefined, {}, { holderIdentity: "" }, { holderIdentity: "other" }]) {
    const other = { metadata: lease.metadata, ...(spec === undefined ? {} : { spec }) };
    t.throws(() => heldLeaseIn(other, "a", "me"), { name: "DoubtfulAnswer" });
  }
  t.end();
});

await tap.test("isAllowed() concludes nothing from an answer that is no review", async (t) => {
  let text = "";
  const server = await startServer(t, (_, response) => response.writeHead(201).end(text));
  const allowed = (): Promise<boolean> => isAllowed(server.transport(), { verb: "list", resource: CRDS });
  for (const said of ["null", "{}", '{"status":{}}', '{"status":{"allowed":"yes"}}']) {
    text = said;
    await t.rejects(allowed(), { name: "DoubtfulAnswer", message: /list customresourcedefinitions/ }, said);
  }
  text = '{"status":{"allowed":false}}';
  t.equal(await allowed(), false);
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
