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
