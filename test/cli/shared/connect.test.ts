import { join } from "node:path";
import tap, { type Test } from "tap";
import { connect } from "../../../src/cli/shared/connect.ts";
import { kubeconfigFor, startServer } from "../../kube/local-server.ts";

const PAGE = "<!DOCTYPE html><html><title>Sign in</title></html>";

function flagsFor(t: Test, url: string) {
  return { kubeconfig: join(t.testdir({ config: kubeconfigFor(url) }), "config"), requestTimeoutMs: 70_000 };
}

await tap.test("connect() asks again where a proxy answers the first request with 404", async (t) => {
  const server = await startServer(t, (_, response) => {
    const isProxy = server.seen.length <= 2;
    response.writeHead(isProxy ? 404 : 200, { "content-type": isProxy ? "text/html" : "application/json" });
    response.end(isProxy ? PAGE : JSON.stringify({ major: "1", minor: "36", gitVersion: "v1.36.0" }));
  });
  const connection = await connect(flagsFor(t, server.url), new AbortController().signal);
  await connection.close();
  t.equal(server.seen.length, 3);
});

await tap.test("connect() gives up where it is a proxy's page each time", async (t) => {
  const server = await startServer(t, (_, response) => {
    response.writeHead(404, { "content-type": "text/html" }).end(PAGE);
  });
  await t.rejects(connect(flagsFor(t, server.url), new AbortController().signal), { code: "NotFound", message: /404/ });
  t.equal(server.seen.length, 5);
});
