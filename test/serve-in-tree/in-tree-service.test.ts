import { setTimeout as delay } from "node:timers/promises";
import { pino } from "pino";
import tap from "tap";
import { ApiClient } from "../../src/kube/client.ts";
import { InTreeService, type ServiceState } from "../../src/serve-in-tree/in-tree-service.ts";
import { FakeClock } from "../fake-clock.ts";
import { groupList, sendJson, sendStatus, startServer } from "../kube/local-server.ts";

/** A clock whose sleeps of a minute take a moment, so that others get their turn. */
class SlowClock extends FakeClock {
  override async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    await delay(5, undefined, signal === undefined ? {} : { signal });
    await super.sleep(ms, signal);
  }
}

// A stand-in: on a real API server of 1.35, test/integration/old-in-tree.test.ts; here, one that is upgraded meanwhile.
await tap.test("InTreeService serves nothing before Kubernetes 1.36, says so once, and looks again", async (t) => {
  let version = "v1.35.4-gke.1";
  const server = await startServer(t, ({ path }, response) => {
    if (path === "/version") return sendJson(response, 200, { gitVersion: version });
    if (path === "/apis") return sendJson(response, 200, groupList("storagemigration.k8s.io/v1beta1"));
    return sendStatus(response, 404);
  });
  const warnings: string[] = [];
  const logger = pino(
    {},
    {
      write: (line: string) => {
        const { level, msg } = JSON.parse(line) as { readonly level: number; readonly msg: string };
        if (level === 40) warnings.push(msg);
      },
    },
  );
  const states: ServiceState[] = [];
  const service = new InTreeService({
    client: new ApiClient(server.transport()),
    clock: new SlowClock(),
    logger,
    feed: { follow: () => Promise.resolve() },
    onState: (state) => states.push(state),
  });
  const abort = new AbortController();
  const ended = service.run(abort.signal);
  const looks = (): number => server.seen.filter(({ path }) => path === "/version").length;
  while (looks() < 4) await delay(5);
  t.same(new Set(states), new Set(["unserved"]));
  t.same(warnings, ["Not serving in-tree migrations: Kubernetes 1.36 or newer is needed"]);
  t.notOk(
    server.seen.some(({ method }) => method !== "GET"),
    "no probe is created",
  );
  version = "v1.36.3";
  while (!states.includes("probing")) await delay(5);
  abort.abort(new Error("the test is over"));
  await ended;
});
