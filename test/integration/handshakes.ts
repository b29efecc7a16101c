import { X509Certificate } from "node:crypto";
import { connect } from "node:tls";
import type { Test } from "tap";
import { WEBHOOK_NAME } from "../../src/freeze/rule.ts";
import { WEBHOOK_CONFIGURATIONS } from "../api-client.ts";
import type { Cluster } from "./cluster.ts";

/** So long an API server goes on with the caBundle that it knew, and a replica with its certificate, as far as these tests go. */
const BEHIND_MS = 1_500;

/** The CAs in the caBundle of the webhook configuration. */
export async function trustedCas({ api }: Cluster): Promise<readonly X509Certificate[]> {
  const { webhooks = [] } = await api.get<{ webhooks?: readonly { clientConfig: { caBundle?: string } }[] }>(
    WEBHOOK_CONFIGURATIONS,
    { name: WEBHOOK_NAME },
  );
  return certificatesIn(Buffer.from(webhooks[0]?.clientConfig.caBundle ?? "", "base64").toString());
}

/** The certificates of a PEM text. */
export function certificatesIn(pem: string): readonly X509Certificate[] {
  const found = pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  return found.map((one) => new X509Certificate(one));
}

/** The certificate that is served at a port of this machine. */
export function servedAt(port: number): Promise<X509Certificate> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: "127.0.0.1", port, rejectUnauthorized: false, minVersion: "TLSv1.3" }, () => {
      const certificate = socket.getPeerX509Certificate();
      socket.destroy();
      if (certificate === undefined) reject(new Error("no certificate is served"));
      else resolve(certificate);
    });
    socket.on("error", reject);
  });
}

function isTrusted(served: X509Certificate, cas: readonly X509Certificate[]): boolean {
  return cas.some((ca) => served.verify(ca.publicKey));
}

/**
 * Opens connections one after the other until it is stopped, at the latest with the test: API servers keep theirs, and hardly ever
 * look at a certificate. An API server or a replica may be a moment behind: what is served now has to be trusted by the caBundle of a moment
 * ago, and what was served then by that of now.
 */
export function keepConnecting(t: Test, cluster: Cluster, port: number) {
  const failures: string[] = [];
  let handshakes = 0;
  const end = new AbortController();
  const known: { readonly cas: readonly X509Certificate[]; readonly served: X509Certificate; readonly at: number }[] =
    [];
  const look = async (): Promise<void> => {
    const at = performance.now();
    const [cas, served] = [await trustedCas(cluster), await servedAt(port)];
    handshakes++;
    known.push({ cas, served, at });
    while (known.length > 1 && (known[0]?.at ?? 0) < at - BEHIND_MS) known.shift();
    const [before = { cas, served }] = known;
    if (!isTrusted(served, before.cas)) failures.push("an API server that is behind does not trust what is served");
    if (!isTrusted(before.served, cas)) failures.push("what a replica that is behind serves is not trusted any more");
  };
  const ended = (async () => {
    while (!end.signal.aborted) {
      await look().catch((error: unknown) => failures.push(String(error)));
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  })();
  const stop = async () => {
    end.abort();
    await ended;
    return { handshakes, failures };
  };
  t.teardown(stop);
  return { stop };
}
