import tap from "tap";
import { WEBHOOK_NAME } from "../../src/api/names.ts";
import { proveBundleSeen } from "../../src/certs/bundle-proof.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { FakeClock } from "../fake-clock.ts";
import { sendJson, startServer } from "../kube/local-server.ts";

const { signal } = new AbortController();

// A stand-in for a proxy: no API server answers so.
for (const [title, body] of [
  ["nothing of an object", {}],
  ["another object", { metadata: { name: "other" }, webhooks: [{ name: WEBHOOK_NAME, clientConfig: {} }] }],
  ["no name", { webhooks: [{ name: WEBHOOK_NAME, clientConfig: {} }] }],
] as const) {
  await tap.test(`proveBundleSeen() takes ${title} for no answer about the caBundle`, async (t) => {
    const server = await startServer(t, (_, response) => sendJson(response, 200, body));
    const client = new ApiClient(server.transport());
    const proof = proveBundleSeen([], {
      findApiServers: async () => ({ mode: "each", clients: [client] }),
      name: "ksvm",
      clock: new FakeClock(),
      timeoutMs: 1_000,
      signal,
    });
    await t.rejects(proof, { code: "RotationStuck", message: /the answer is not this object/ });
  });
}
