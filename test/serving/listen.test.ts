import { once } from "node:events";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import Fastify from "fastify";
import tap from "tap";
import { listenAt } from "../../src/serving/listen.ts";

const base = { message: "Listening", flags: "--webhook" };

await tap.test("listenAt() says which port is in use, and which flag sets another one", async (t) => {
  for (const host of ["127.0.0.1", "::"]) {
    const other = createServer().listen(0, host);
    await once(other, "listening");
    t.teardown(() => other.close());
    const { port } = other.address() as AddressInfo;
    const app = Fastify();
    t.teardown(() => app.close());
    await t.rejects(listenAt(app, { ...base, host, port }), {
      code: "ListenFailed",
      message: /^Cannot listen on (127\.0\.0\.1|\[::\]):\d+: another process uses this port; .* with --webhook-port$/,
    });
  }
});

await tap.test("listenAt() says that the machine has no such address", async (t) => {
  const app = Fastify();
  t.teardown(() => app.close());
  // An address for documentation (RFC 5737).
  await t.rejects(listenAt(app, { ...base, host: "192.0.2.1", port: 0 }), {
    code: "ListenFailed",
    message: "Cannot listen on 192.0.2.1:0: this machine has no such address; set one that it has with --webhook-host",
  });
});
