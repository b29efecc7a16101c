import tap from "tap";
import { listNamed } from "../../src/kube/list-named.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { FakeClock } from "../fake-clock.ts";
import { sendJson, startServer } from "./local-server.ts";

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

await tap.test("listNamed() looks for the name as it is, whatever characters it has", async (t) => {
  const name = "a,b=c\\d";
  const items = [{ metadata: { name } }];
  const server = await startServer(t, (_, response) => sendJson(response, 200, { kind: "RoleList", items }));
  const roles = { group: "rbac.authorization.k8s.io", version: "v1", resource: "roles" };
  const { object } = await listNamed(server.transport(), roles, { name, namespace: "ns" }, { notOlderThan: "7" });
  t.same(object, items[0]);
  t.same(Object.fromEntries(server.seen[0]?.query ?? []), {
    fieldSelector: "metadata.name=a\\,b\\=c\\\\d",
    resourceVersion: "7",
    resourceVersionMatch: "NotOlderThan",
  });
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

await tap.test("listNamed() is asked again by a run whose proxy answered for the API server", async (t) => {
  const list = { kind: "ConfigMapList", metadata: { resourceVersion: "7" }, items: [b] };
  const answers: unknown[] = [{}, list];
  const server = await startServer(t, (_, response) => sendJson(response, 200, answers.shift()));
  const transport = server.transport();
  const retrier = new Retrier({ clock: new FakeClock(), random: () => 0 });
  const found = await retrier.run(() => listNamed(transport, CONFIG_MAPS, { name: "b", namespace: "ns" }), undefined);
  t.same(found.object, b);
});
