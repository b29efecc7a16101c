import { pino } from "pino";
import tap from "tap";
import { ApiClient } from "../../src/kube/client.ts";
import { patientRetrier, ServedMigrations } from "../../src/serve-in-tree/served-migrations.ts";
import { FakeClock } from "../fake-clock.ts";
import { sendJson, sendStatus, startServer } from "../kube/local-server.ts";
import { inTreeMigration } from "./in-tree-migration.ts";

const RESOURCE = { group: "storagemigration.k8s.io", version: "v1beta1", resource: "storageversionmigrations" };

// A stand-in: a mutating webhook of another client that takes away what is written.
await tap.test("a status that the API server does not keep is written once in a round", async (t) => {
  const { writers: _, ...migration } = inTreeMigration();
  const stored = { apiVersion: "storagemigration.k8s.io/v1beta1", kind: "StorageVersionMigration", ...migration };
  const abort = new AbortController();
  const server = await startServer(t, ({ method }, response) => {
    if (method !== "PATCH") return sendStatus(response, 404);
    if (server.seen.length >= 20) abort.abort(new Error("it is written again and again"));
    return sendJson(response, 200, stored);
  });
  const clock = new FakeClock();
  const served = new ServedMigrations(
    {
      client: new ApiClient(server.transport()),
      clock,
      logger: pino({ level: "silent" }),
      resource: RESOURCE,
      retrier: patientRetrier(clock),
      signal: abort.signal,
    },
    [],
  );
  t.equal(await served.advance([inTreeMigration()], new Map()), true, "there is more to do in the next round");
  t.equal(server.seen.filter(({ method }) => method === "PATCH").length, 1);
});

/** An API server with widgets, which has a migration of ours under the name of the companion. */
function answerTo(path: string): object {
  if (path === "/api") return { kind: "APIVersions", versions: [] };
  if (path === "/apis") {
    const version = { groupVersion: "example.com/v1", version: "v1" };
    return { kind: "APIGroupList", groups: [{ name: "example.com", versions: [version], preferredVersion: version }] };
  }
  if (path === "/apis/example.com/v1") {
    const verbs = ["list", "get", "patch", "update", "watch"];
    const widgets = { name: "widgets", kind: "Widget", namespaced: true, verbs };
    return { kind: "APIResourceList", groupVersion: "example.com/v1", resources: [widgets] };
  }
  const deleted = { deletionTimestamp: "2026-01-01T00:00:00Z", labels: { "ksvm.sigs.k8s.io/created-by": "in-tree" } };
  return {
    kind: "StorageVersionMigration",
    metadata: { name: "in-tree-one", uid: "u", resourceVersion: "5", ...deleted },
  };
}

await tap.test("it says that a finalizer keeps a migration of ours whose place another one is to take", async (t) => {
  const server = await startServer(t, ({ method, path }, response) => {
    if (method === "POST") return sendStatus(response, 409, { reason: "AlreadyExists" });
    if (path.includes("customresourcedefinitions")) {
      return sendStatus(response, 404, { reason: "NotFound", details: { name: "widgets.example.com" } });
    }
    return sendJson(response, 200, answerTo(path));
  });
  const clock = new FakeClock();
  const lines: string[] = [];
  const served = new ServedMigrations(
    {
      client: new ApiClient(server.transport()),
      clock,
      logger: pino({}, { write: (line: string) => void lines.push(line) }),
      resource: RESOURCE,
      retrier: patientRetrier(clock),
      signal: new AbortController().signal,
    },
    [],
  );
  const waiting = inTreeMigration({ conditions: ["Running=True"], resourceVersion: "3" });
  await served.advance([waiting], new Map());
  await served.advance([waiting], new Map());
  t.equal(lines.filter((line) => line.includes("a finalizer keeps it")).length, 1, lines.join(""));
});
