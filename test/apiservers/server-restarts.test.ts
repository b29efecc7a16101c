import tap from "tap";
import { ApiClient } from "../../src/kube/client.ts";
import type { ApiServers } from "../../src/apiservers/api-servers.ts";
import type { MigrationEvent } from "../../src/migrator/events.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { isAnyReplaced, ServerRestarts } from "../../src/apiservers/server-restarts.ts";
import { FakeClock } from "../fake-clock.ts";
import { startServer } from "../kube/local-server.ts";

const A = new Map([
  ["https://a", "1"],
  ["https://b", "2"],
]);

function newContext() {
  const events: MigrationEvent[] = [];
  const emit = (event: MigrationEvent): void => void events.push(event);
  const context = { clock: new FakeClock(), emit, signal: new AbortController().signal } as unknown as RunContext;
  return { context, events };
}

/** As the authorizer says it. */
const FORBIDDEN = JSON.stringify({
  kind: "Status",
  reason: "Forbidden",
  message: 'forbidden: User "u" cannot get path "/metrics"',
});

const up = (time: number): readonly [number, string] => [200, `process_start_time_seconds ${time}\n`];

await tap.test("isAnyReplaced() compares process by process", (t) => {
  t.notOk(isAnyReplaced(A, new Map(A)));
  t.ok(isAnyReplaced(A, new Map(A).set("https://b", "3")), "one restarted");
  t.ok(isAnyReplaced(A, new Map([["https://a", "1"]])), "of one it cannot be told any more");
  t.ok(isAnyReplaced(new Map(), A), "of both it could not be told before");
  const blind = new Map([["https://a", undefined]]);
  t.ok(isAnyReplaced(blind, new Map([["https://a", "1"]])), "it can be told only now");
  t.ok(isAnyReplaced(new Map([["https://a", "1"]]), blind), "it cannot be told any more");
  t.notOk(isAnyReplaced(blind, new Map(blind)), "what neither look could tell shows nothing");
  t.end();
});

await tap.test("ServerRestarts counts the looks after which an API server was another process", async (t) => {
  let [status, started] = [200, 1];
  const server = await startServer(t, (_, response) => {
    response.writeHead(status).end(`process_start_time_seconds ${started}\n`);
  });
  const apiServers: ApiServers = { mode: "each", clients: [new ApiClient(server.transport())] };
  const { context } = newContext();
  const restarts = new ServerRestarts();
  t.equal(await restarts.look(context, apiServers), 0);
  t.equal(await restarts.look(context, apiServers), 0);
  started = 2;
  t.equal(await restarts.look(context, apiServers), 1);
  t.equal(await restarts.look(context, apiServers), 1);
  status = 503;
  t.equal(await restarts.look(context, apiServers), 2, "it cannot be told any more");
  t.equal(await restarts.look(context, apiServers), 3, "one that could be told once is not taken for the same unseen");
  status = 200;
  t.equal(await restarts.look(context, apiServers), 4, "it can be told again, and may be another one");
  t.equal(await restarts.look(context, apiServers), 4);
});

await tap.test("ServerRestarts asks again what a proxy answers, and not what the authorizer forbids", async (t) => {
  const HTML = "<html>please log in</html>";
  let answers: (readonly [status: number, body: string])[] = [];
  const server = await startServer(t, (_, response) => {
    const [status, body] = answers.length > 1 ? (answers.shift() ?? [500, ""]) : (answers[0] ?? [500, ""]);
    response.writeHead(status).end(body);
  });
  const apiServers: ApiServers = { mode: "each", clients: [new ApiClient(server.transport())] };
  const { context } = newContext();

  const restarts = new ServerRestarts();
  answers = [[200, HTML], [403, "forbidden by proxy"], up(1)];
  t.equal(await restarts.look(context, apiServers), 0);
  answers = [up(1)];
  t.equal(await restarts.look(context, apiServers), 0, "the first look asked until it found out");
  answers = [up(2)];
  t.equal(await restarts.look(context, apiServers), 1);

  const late = new ServerRestarts();
  answers = [[200, HTML]];
  t.equal(await late.look(context, apiServers), 0);
  answers = [up(2)];
  t.equal(
    await late.look(context, apiServers),
    1,
    "a first look that could not tell proves nothing about the last one",
  );

  answers = [[403, FORBIDDEN]];
  const seen = server.seen.length;
  const blind = new ServerRestarts();
  t.equal(await blind.look(context, apiServers), 0);
  t.equal(server.seen.length, seen + 1, "what is forbidden is not asked again");
  t.equal(await blind.look(context, apiServers), 0, "where /metrics is forbidden all along, a restart does not show");
});

await tap.test("ServerRestarts samples the API servers behind one address that no identity Lease counts", async (t) => {
  let [asked, processes] = [0, ["1", "2"]];
  const server = await startServer(t, (_, response) => {
    response.writeHead(200).end(`process_start_time_seconds ${processes[asked++ % processes.length]}\n`);
  });
  const open = (): ApiClient => new ApiClient(server.transport());
  const apiServers: ApiServers = { mode: "sampled", server: "https://a", open };
  const { context } = newContext();
  const restarts = new ServerRestarts();
  t.equal(await restarts.look(context, apiServers), 0);
  t.equal(await restarts.look(context, apiServers), 0);
  processes = ["1", "3"];
  t.equal(await restarts.look(context, apiServers), 1, "one of them restarted");
  t.equal(await restarts.look(context, apiServers), 1);
});

for (const [title, status, body, reason] of [
  ["nothing there", 404, "404 page not found", /404/],
  ["a page", 200, "<html>log in</html>", /the answer has no metrics/],
  ["a refusal of the authorizer", 403, FORBIDDEN, /may not get the nonResourceURL "\/metrics"; grant that/],
] as const) {
  await tap.test(`ServerRestarts says once at the start what is not proven where /metrics is ${title}`, async (t) => {
    const server = await startServer(t, (_, response) => response.writeHead(status).end(body));
    const open = (): ApiClient => new ApiClient(server.transport());
    for (const apiServers of [
      { mode: "each", clients: [open()] },
      { mode: "sampled", server: server.url, open },
    ] as const) {
      const { context, events } = newContext();
      const restarts = new ServerRestarts();
      await restarts.look(context, apiServers);
      t.match(events, [{ type: "warning", message: /^Cannot prove that no API server restarts during this run/ }]);
      t.match(events, [{ message: reason }]);
      await restarts.look(context, apiServers);
      t.equal(events.length, 1, "once");
    }
  });
}

await tap.test("ServerRestarts warns of nothing where each API server shows when it started", async (t) => {
  const server = await startServer(t, (_, response) => response.end(up(1)[1]));
  const { context, events } = newContext();
  await new ServerRestarts().look(context, { mode: "each", clients: [new ApiClient(server.transport())] });
  t.same(events, []);
});
