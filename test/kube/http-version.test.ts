import { once } from "node:events";
import { createSecureServer } from "node:http2";
import type { AddressInfo } from "node:net";

import tap from "tap";

import { issueSelfSigned } from "../../src/certs/self-signed.ts";
import { Transport } from "../../src/kube/transport.ts";
import { configFor, kubeconfigFor } from "./local-server.ts";

await tap.test("a server that speaks HTTP/2 is spoken to in HTTP/1.1", async (t) => {
  // Local, to see the version. Over HTTP/2 one in two hundred transports that were closed with a watch just ended raised
  // an error that nothing could catch.
  const { certPem, keyPem } = await issueSelfSigned({
    dnsNames: [],
    ipAddresses: ["127.0.0.1"],
    now: new Date(),
    lifetimeMs: 60_000,
  });
  const server = createSecureServer({ cert: certPem, key: keyPem, allowHTTP1: true }, (request, response) => {
    response.end(JSON.stringify({ version: request.httpVersion }));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const transport = new Transport(configFor(kubeconfigFor(`https://127.0.0.1:${port}`)));
  t.teardown(async () => {
    await transport.close();
    server.close();
  });
  t.same((await transport.request({ method: "GET", path: "/" })).body, { version: "1.1" });
});
