import { once } from "node:events";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import tap, { type Test } from "tap";
import { issueCa, issueServing } from "../../src/certs/issue.ts";
import { KubeConfig } from "@kubernetes/client-node";
import { Transport } from "../../src/kube/transport.ts";

const HOUR_MS = 3_600_000;
const now = new Date();
const [ca, other] = await Promise.all([issueCa({ now, lifetimeMs: HOUR_MS }), issueCa({ now, lifetimeMs: HOUR_MS })]);

async function serve(
  t: Test,
  names: { readonly at?: Date; readonly ipAddresses?: readonly string[] },
): Promise<{ readonly url: string; readonly caPem: string }> {
  const { at = now, ipAddresses = ["127.0.0.1"] } = names;
  const signer = at === now ? ca : await issueCa({ now: at, lifetimeMs: HOUR_MS });
  const pair = await issueServing({ ca: signer, now: at, lifetimeMs: HOUR_MS, dnsNames: ["a.example"], ipAddresses });
  const server = createServer({ cert: pair.certPem, key: pair.keyPem }, (_, response) => response.end("{}"));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => server.close());
  return { url: `https://127.0.0.1:${(server.address() as AddressInfo).port}`, caPem: signer.certPem };
}

function transport(t: Test, server: string, caPem: string): Transport {
  const config = new KubeConfig();
  const caData = Buffer.from(caPem).toString("base64");
  config.loadFromOptions({
    clusters: [{ name: "a", server, caData }],
    users: [{ name: "a", token: "a" }],
    contexts: [{ name: "a", cluster: "a", user: "a" }],
    currentContext: "a",
  });
  const opened = new Transport(config);
  t.teardown(() => opened.close());
  return opened;
}

const REQUEST = { method: "GET", path: "/version" } as const;

await tap.test(
  "a server whose CA the kubeconfig does not name is untrusted, and the message says what to set",
  async (t) => {
    const { url } = await serve(t, {});
    await t.rejects(transport(t, url, other.certPem).request(REQUEST), {
      code: "ServerUntrusted",
      message:
        /^Cannot GET \/version: no trusted connection to https:[^\n]*; set certificate-authority or [^\n]*kubeconfig/,
    });
    await t.resolves(transport(t, url, ca.certPem).request(REQUEST), "negative control");
  },
);

await tap.test(
  "a server whose certificate is for another address is untrusted, and the message says what to set",
  async (t) => {
    const { url } = await serve(t, { ipAddresses: [] });
    await t.rejects(transport(t, url, ca.certPem).request(REQUEST), {
      code: "ServerUntrusted",
      message: /tls-server-name/,
    });
  },
);

await tap.test(
  "a server whose certificate expired, or is not valid yet, is untrusted, and the message names the clock",
  async (t) => {
    for (const ms of [-48 * HOUR_MS, 48 * HOUR_MS]) {
      const { url, caPem } = await serve(t, { at: new Date(now.getTime() + ms) });
      await t.rejects(transport(t, url, caPem).request(REQUEST), {
        code: "ServerUntrusted",
        message: /clock of this machine/,
      });
    }
  },
);
