import tap from "tap";
import { readSecret } from "../../src/certs/secret-store.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { CRDS } from "../../src/kube/resources.ts";
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

for (const method of ["GET", "POST", "PUT", "PATCH"] as const) {
  await tap.test(`Transport.request() does not take an empty answer to a ${method}`, async (t) => {
    const server = await startServer(t, (_, response) => response.end());
    await t.rejects(server.transport().request({ method, path: "/x" }), {
      name: "DoubtfulAnswer",
      message: `Cannot ${method} /x: the answer of ${server.url} is empty`,
    });
  });
}
