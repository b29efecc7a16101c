import t from "tap";
import { ApiClient } from "../../src/kube/client.ts";
import { DoubtfulAnswer } from "../../src/kube/errors.ts";
import { allItemsOf, itemsOf, type ListAnswer } from "../../src/kube/listed-items.ts";
import { CRDS } from "../../src/kube/resources.ts";
import { endpointUrls, identityLeases } from "../../src/apiservers/control-plane-objects.ts";
import { findReplicas } from "../../src/certs/replicas.ts";
import { FakeClock } from "../fake-clock.ts";
import { sendJson, startServer } from "./local-server.ts";

await t.test("itemsOf() concludes nothing from an answer that is no list", async (t) => {
  t.same(itemsOf({ items: [1, 2] }, "/leases"), [1, 2]);
  t.same(itemsOf({ items: null }, "/leases"), []);
  for (const body of [{}, [], "", null, undefined, 7, { items: {} }, { items: "none" }, { kind: "LeaseList" }]) {
    t.throws(() => itemsOf(body as ListAnswer<number>, "/leases"), DoubtfulAnswer);
  }
  t.throws(() => itemsOf({}, "/leases"), { message: "Cannot list /leases: the answer has no items, so it is no list" });
});

await t.test("allItemsOf() takes no page for the whole list", async (t) => {
  t.same(allItemsOf({ items: [1] }, "/leases"), [1]);
  t.same(allItemsOf({ metadata: { continue: "" }, items: [1] }, "/leases"), [1]);
  t.same(allItemsOf({ metadata: null, items: null }, "/leases"), []);
  t.throws(() => allItemsOf({ metadata: { continue: "abc" }, items: [1] }, "/leases"), DoubtfulAnswer);
  t.throws(() => allItemsOf({ metadata: { continue: "abc" }, items: null }, "/leases"), DoubtfulAnswer);
});

await t.test("A list that is asked for whole concludes nothing from one page of it", async (t) => {
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
