import tap from "tap";
import { ApiClient } from "../../src/kube/client.ts";
import type { ApiServers } from "../../src/migrator/api-servers.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { isAnyReplaced, ServerRestarts } from "../../src/migrator/server-restarts.ts";
import { FakeClock } from "../fake-clock.ts";
import { startServer } from "../kube/local-server.ts";

const A = new Map([
  ["https://a", "1"],
  ["https://b", "2"],
]);

await tap.test("isAnyReplaced() compares process by process", (t) => {
  t.notOk(isAnyReplaced(A, new Map(A)));
  t.ok(isAnyReplaced(A, new Map(A).set("https://b", "3")), "one restarted");
  t.ok(isAnyReplaced(A, new Map([["https://a", "1"]])), "of one it cannot be told any more");
  t.notOk(isAnyReplaced(new Map(), A), "what could not be told before shows nothing");
  t.end();
});

await tap.test("ServerRestarts counts the looks after which an API server was another process", async (t) => {
  let [status, started] = [200, 1];
  const server = await startServer(t, (_, response) => {
    response.writeHead(status).end(`process_start_time_seconds ${started}\n`);
  });
  const apiServers: ApiServers = { mode: "each", clients: [new ApiClient(server.transport())] };
  const context = { clock: new FakeClock(), signal: new AbortController().signal } as unknown as RunContext;
  const restarts = new ServerRestarts();
  t.equal(await restarts.look(context, apiServers), 0);
  t.equal(await restarts.look(context, apiServers), 0);
  started = 2;
  t.equal(await restarts.look(context, apiServers), 1);
  t.equal(await restarts.look(context, apiServers), 1);
  status = 503;
  t.equal(await restarts.look(context, apiServers), 2, "it cannot be told any more");
  t.equal(await restarts.look(context, apiServers), 2);

  status = 403;
  const seen = server.seen.length;
  const blind = new ServerRestarts();
  t.equal(await blind.look(context, apiServers), 0);
  t.equal(server.seen.length, seen + 1, "what is forbidden is not asked again");
  started = 3;
  t.equal(await blind.look(context, apiServers), 0, "where /metrics is forbidden, a restart does not show");
});
