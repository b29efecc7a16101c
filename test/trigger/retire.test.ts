import { pino } from "pino";
import tap, { type Test } from "tap";
import { MANAGED_BY, MANAGED_BY_LABEL } from "../../src/api/names.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { retireStorageStates } from "../../src/trigger/retire.ts";
import { FakeClock } from "../fake-clock.ts";
import { groupList, sendJson, sendStatus, startServer } from "../kube/local-server.ts";

const STATES_PATH = "/apis/migration.k8s.io/v1alpha1/storagestates";
const CRD_NAME = "storagestates.migration.k8s.io";
const CRD_PATH = `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${CRD_NAME}`;
const logger = pino({ level: "silent" });

/** A stand-in for an API server at one moment of its start: a real one does not stand still there. */
async function startApi(t: Test, given: { isServed: boolean; isInstalled: boolean }) {
  const server = await startServer(t, ({ method, path }, response) => {
    if (path === "/apis") {
      sendJson(response, 200, groupList("apps/v1"));
    } else if (path === CRD_PATH && given.isInstalled) {
      sendJson(response, 200, { metadata: { name: CRD_NAME, uid: "u" } });
    } else if (path === CRD_PATH) {
      sendStatus(response, 404, { reason: "NotFound", details: { name: CRD_NAME } });
    } else if (!given.isServed) {
      response.writeHead(404).end("404 page not found\n");
    } else if (method === "GET") {
      const metadata = {
        name: "as.example.com",
        uid: "1",
        resourceVersion: "1",
        labels: { [MANAGED_BY_LABEL]: MANAGED_BY },
      };
      const list = { kind: "StorageStateList", metadata: { resourceVersion: "1" } };
      sendJson(response, 200, { ...list, items: [{ metadata, spec: { resource: {} } }] });
    } else {
      sendJson(response, 200, { kind: "Status", status: "Success", details: { name: "as.example.com" } });
    }
  });
  const clock = new (class extends FakeClock {
    override async sleep(ms: number, within?: AbortSignal): Promise<void> {
      await super.sleep(ms, within);
      given.isServed = given.isInstalled && this.sleeps.length >= 3;
    }
  })();
  const client = new ApiClient(server.transport());
  await retireStorageStates({ client, clock, logger, signal: AbortSignal.timeout(30_000) });
  return server.seen.filter(({ path }) => path.startsWith(STATES_PATH)).map(({ method }) => method);
}

await tap.test(
  "retireStorageStates() looks again while an API server does not list the group of a CRD yet",
  async (t) => {
    const requests = await startApi(t, { isServed: false, isInstalled: true });
    t.equal(requests.at(-1), "DELETE");
    t.ok(requests.length > 3, `${requests.length} requests`);
  },
);

await tap.test("retireStorageStates() is done where the CRD is not installed", async (t) => {
  t.same(await startApi(t, { isServed: false, isInstalled: false }), ["GET"]);
});
