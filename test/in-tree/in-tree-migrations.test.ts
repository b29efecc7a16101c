import tap from "tap";
import { ApiClient } from "../../src/kube/client.ts";
import { inTreeMigrations } from "../../src/in-tree/in-tree-migrations.ts";
import { groupList, sendJson, startServer } from "../kube/local-server.ts";

const COUNT = 70;

// A stand-in: etcd holds no migrations of 70 MiB here.
await tap.test("inTreeMigrations() reads migrations that are larger together than an answer may be", async (t) => {
  const annotations = { note: "x".repeat(2 ** 20) };
  const items = Array.from({ length: COUNT }, (_, at) => ({
    metadata: {
      name: `m${at}`,
      uid: `u${at}`,
      resourceVersion: "1",
      creationTimestamp: "2026-01-01T00:00:00Z",
      annotations,
    },
    spec: { resource: { group: "example.com", resource: "widgets" } },
    status: { conditions: [{ type: "Running", status: "True", reason: "r", message: "m" }] },
  }));
  const list = { kind: "StorageVersionMigrationList", metadata: { resourceVersion: "9" }, items };
  const server = await startServer(t, ({ path }, response) =>
    sendJson(response, 200, path === "/apis" ? groupList("storagemigration.k8s.io/v1beta1") : list),
  );
  const found = await inTreeMigrations(new ApiClient(server.transport()));
  t.equal(found.length, COUNT);
  t.same(found[0], {
    metadata: { name: "m0", uid: "u0", resourceVersion: "1", creationTimestamp: "2026-01-01T00:00:00Z" },
    spec: { resource: { group: "example.com", resource: "widgets" } },
    status: { conditions: [{ type: "Running", status: "True", reason: "r", message: "m" }] },
  });
});
