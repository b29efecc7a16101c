import tap from "tap";
import { readServerInstance } from "../../src/apiservers/server-instance.ts";
import { startServer } from "../kube/local-server.ts";

const { signal } = new AbortController();
const METRICS = 'go_info{version="go1.26"} 1\nprocess_start_time_seconds 1.79529975674e+09\nrest_client_total 2\n';

await tap.test("readServerInstance() reads when the process of an API server started", async (t) => {
  // In pieces that break the line.
  const server = await startServer(t, (_, response) => {
    response.write(METRICS.slice(0, 45));
    setTimeout(() => response.end(METRICS.slice(45)), 20);
  });
  t.equal(await readServerInstance(server.transport(), signal), "1.79529975674e+09");
  t.equal(server.seen[0]?.path, "/metrics");
});

/** As the authorizer says it. */
const FORBIDDEN = JSON.stringify({
  kind: "Status",
  reason: "Forbidden",
  message: 'forbidden: User "jane" cannot get path "/metrics"',
});

const refusals: readonly [title: string, status: number, body: string, message: RegExp][] = [
  ["/metrics is forbidden", 403, FORBIDDEN, /may not get the nonResourceURL "\/metrics".*--apiserver-endpoints/],
  ["metrics do not say it", 200, "go_info 1\n", /does not show process_start_time_seconds/],
];

for (const [title, status, body, message] of refusals) {
  await tap.test(`readServerInstance() refuses where ${title}`, async (t) => {
    const server = await startServer(t, (_, response) => response.writeHead(status).end(body));
    await t.rejects(readServerInstance(server.transport(), signal), { code: "ApiServerMissing", message });
  });
}

// What a proxy may send; the next answer may be the API server's.
for (const [title, status, body] of [
  ["a page", 200, "<html>\nplease log in\n</html>\n"],
  ["a JSON object", 200, "{}"],
  ["nothing", 200, ""],
  ["a 403 without the authorizer's words", 403, "<html>blocked</html>"],
] as const) {
  await tap.test(`readServerInstance() concludes nothing from a proxy that answers with ${title}`, async (t) => {
    const server = await startServer(t, (_, response) => response.writeHead(status).end(body));
    await t.rejects(readServerInstance(server.transport(), signal), { name: "DoubtfulAnswer" });
  });
}

await tap.test("readServerInstance() takes metrics that break off for no answer", async (t) => {
  const server = await startServer(t, (_, response) => {
    response.write(METRICS);
    setTimeout(() => response.destroy(), 20);
  });
  await t.rejects(readServerInstance(server.transport(), signal), { name: "TransportError" });
});
