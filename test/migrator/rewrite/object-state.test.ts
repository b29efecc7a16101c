import tap from "tap";

import type { ListedObject } from "../../../src/kube/listed-object.ts";
import { readObjectState, stateOf } from "../../../src/migrator/rewrite/object-state.ts";
import { sendJson, startServer } from "../../kube/local-server.ts";

const LISTED: ListedObject = {
  name: "a",
  namespace: "ns",
  uid: "uid-a",
  resourceVersion: "50",
  hasManagedFields: true,
  digest: "d",
};

await tap.test("stateOf() is gone only where a list shows no object of the name", async (t) => {
  t.strictSame(stateOf(undefined, LISTED), { kind: "gone" });
  t.strictSame(stateOf(LISTED, LISTED), { kind: "present", object: LISTED });
  const other = { ...LISTED, uid: "uid-b" };
  t.strictSame(stateOf(other, LISTED), { kind: "replaced", object: other });
});

for (const { shown, sought, kind } of [
  { shown: { namespace: "ns", uid: "uid-b" }, sought: {}, kind: "gone" },
  { shown: { namespace: "ns", uid: "uid-b" }, sought: { namespace: "ns" }, kind: "replaced" },
  { shown: { namespace: "ns", uid: "uid-a" }, sought: { namespace: "ns" }, kind: "present" },
  // An aggregated API server may leave out what the path says.
  { shown: { uid: "uid-a" }, sought: { namespace: "ns" }, kind: "present" },
] as const) {
  const words = `${JSON.stringify(sought)} where a list shows ${JSON.stringify(shown)}`;
  await tap.test(`readObjectState() is "${kind}" for ${words}`, async (t) => {
    const server = await startServer(t, (_, response) => {
      const items = [{ metadata: { name: "x", resourceVersion: "50", ...shown } }];
      sendJson(response, 200, { kind: "PartialObjectMetadataList", metadata: { resourceVersion: "60" }, items });
    });
    const resource = { group: "example.com", version: "v1", resource: "widgets" };
    const object = { name: "x", uid: "uid-a", ...sought };
    const { signal } = new AbortController();
    const state = await readObjectState(server.transport(), resource, object, { signal });
    t.equal(state.kind, kind);
  });
}

await tap.test(
  "readObjectState() finds an object without a namespace behind one of the same name in a namespace",
  async (t) => {
    const other = { metadata: { name: "x", namespace: "default", uid: "uid-b", resourceVersion: "50" } };
    const left = { metadata: { name: "x", uid: "uid-a", resourceVersion: "40" } };
    const server = await startServer(t, (_, response) => {
      const metadata = { resourceVersion: "60" };
      sendJson(response, 200, { kind: "PartialObjectMetadataList", metadata, items: [other, left] });
    });
    const resource = { group: "example.com", version: "v1", resource: "widgets" };
    const { signal } = new AbortController();
    const state = await readObjectState(server.transport(), resource, { name: "x", uid: "uid-a" }, { signal });
    t.match(state, { kind: "present", object: { resourceVersion: "40" } });
  },
);
