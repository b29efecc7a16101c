import tap from "tap";
import { ApiClient } from "../../src/kube/client.ts";
import { APPLY_PATCH, CRDS } from "../../src/kube/resources.ts";
import { sendJson, sendStatus, startServer } from "./local-server.ts";

const REF = { name: "widgets.example.com" };
const PATCH = { type: APPLY_PATCH, body: {} };
const CLOSED = new Error("the fence is closed");

await tap.test(
  "ApiClient.fencedBy() asks the fence before each request that stores something, and no other",
  async (t) => {
    const server = await startServer(t, (_request, response) =>
      sendJson(response, 200, { metadata: { ...REF, resourceVersion: "1" }, items: [] }),
    );
    const open = new ApiClient(server.transport());
    const fenced = open.fencedBy(() => Promise.reject(CLOSED));
    const stored = [
      () => fenced.create(CRDS, { metadata: {} }),
      () => fenced.patch(CRDS, REF, PATCH),
      () => fenced.patch(CRDS, REF, PATCH, { subresource: "status" }),
      () => fenced.delete(CRDS, REF),
    ];
    for (const write of stored) await t.rejects(write(), CLOSED);
    t.same(server.seen, [], "nothing was sent");

    await fenced.get(CRDS, REF);
    await fenced.listMetadata(CRDS);
    await fenced.patch(CRDS, REF, PATCH, { dryRun: true });
    await open.patch(CRDS, REF, PATCH);
    t.same(
      server.seen.map(({ method }) => method),
      ["GET", "GET", "PATCH", "PATCH"],
      "what stores nothing passes, and so does everything past the fence",
    );
  },
);

await tap.test("Transport.fencedBy() asks once more before the second try after a 401", async (t) => {
  const server = await startServer(t, (_request, response) => sendStatus(response, 401));
  const asked: string[] = [];
  const fenced = new ApiClient(server.transport()).fencedBy(async () => {
    asked.push("asked");
    if (asked.length > 1) throw CLOSED;
  });
  await t.rejects(fenced.patch(CRDS, REF, PATCH), CLOSED);
  t.equal(server.seen.length, 1);
});

await tap.test("Transport.fencedBy() asks again before each attempt, and sends once the fence opens", async (t) => {
  const server = await startServer(t, (_request, response) =>
    sendJson(response, 200, { metadata: { ...REF, resourceVersion: "1" } }),
  );
  const { promise, resolve } = Promise.withResolvers<void>();
  const fenced = new ApiClient(server.transport()).fencedBy(() => promise);
  const write = fenced.patch(CRDS, REF, PATCH);
  await new Promise((later) => setImmediate(later));
  t.same(server.seen, []);
  resolve();
  await write;
  t.equal(server.seen.length, 1);
});
