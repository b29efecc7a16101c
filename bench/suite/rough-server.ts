// An API server that refuses some writes: an HTTPS proxy that answers 429 or 503 to a share of the PATCH requests.
// rough-server.ts CONFIGURATION, which is JSON; it prints its port, and ends with its input.
import { Agent, createServer, request } from "node:https";
import type { AddressInfo } from "node:net";

/** What the proxy is like. */
export interface Rough {
  readonly target: string;
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
  /** Of the PATCH requests, from 0 to 1. */
  readonly share: number;
}

const { target, ca, cert, key, share } = JSON.parse(process.argv[2] ?? "") as Rough;
const { hostname, port } = new URL(target);
const agent = new Agent({ keepAlive: true, ca, maxSockets: 256 });
const server = createServer({ cert, key }, (incoming, outgoing) => {
  const { method = "GET", url: path = "/", headers } = incoming;
  if (method === "PATCH" && path.includes("/apis/example.com/") && Math.random() < share) {
    incoming.resume();
    const code = Math.random() < 0.5 ? 429 : 503;
    outgoing.writeHead(code, { "content-type": "application/json", "retry-after": "1" });
    outgoing.end(
      JSON.stringify({
        kind: "Status",
        apiVersion: "v1",
        status: "Failure",
        code,
        reason: code === 429 ? "TooManyRequests" : "ServiceUnavailable",
        message: "the proxy says no",
      }),
    );
    return;
  }
  const upstream = request({ agent, hostname, port, method, path, headers }, (answer) => {
    outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
    outgoing.flushHeaders();
    answer.pipe(outgoing);
  });
  upstream.on("error", () => outgoing.destroy());
  outgoing.on("close", () => upstream.destroy());
  incoming.pipe(upstream);
});
server.listen(0, "127.0.0.1", () => console.log((server.address() as AddressInfo).port));
process.stdin.on("end", () => process.exit()).resume();
