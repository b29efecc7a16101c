import type { ServerResponse } from "node:http";
import tap from "tap";
import type { ApiServers } from "../../src/apiservers/api-servers.ts";
import { agreementOf, type Answered, serverIdHashOf } from "../../src/apiservers/encryption-agreement.ts";
import { answersOf } from "../../src/apiservers/encryption-answers.ts";
import { systemClock } from "../../src/clock.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { startServer } from "../kube/local-server.ts";

const IDENTITIES = ["lease-a", "lease-b"];
const [CONFIG, KEY] = [serverIdHashOf("config"), serverIdHashOf("key")];
const WORKS = "[+]ping ok\n[+]kms-providers ok\nhealthz check passed\n";
const FAILS = "[+]ping ok\n[-]kms-providers failed: reason withheld\nhealthz check failed\n";

/** The metrics of an API server, of the size that they have with a few resources. */
function metricsOf(identity: string): string {
  const id = `apiserver_id_hash="${serverIdHashOf(identity)}"`;
  return [
    `process_start_time_seconds ${IDENTITIES.indexOf(identity) + 1}`,
    `apiserver_encryption_config_controller_last_config_info{${id},hash="${CONFIG}"} 1`,
    `apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds{${id},key_id_hash="${KEY}",provider_name="vault"} 5`,
    ...Array.from({ length: 5_000 }, (_, index) => `apiserver_request_total{code="${index}"} 1`),
    "",
  ].join("\n");
}

/**
 * Two API servers behind a load balancer that passes connections on to each in turn, and to the first one what begins with a question for
 * its health.
 */
async function setting(
  t: Parameters<typeof startServer>[0],
  { unhealthy, closes = false }: { readonly unhealthy?: string; readonly closes?: boolean },
) {
  const peers = new WeakMap<object, string>();
  const counts = { metrics: 0, health: 0, unpaired: 0 };
  const identityOf = ({ socket }: ServerResponse): string => {
    const key = socket ?? {};
    const identity = peers.get(key) ?? IDENTITIES[counts.metrics++ % IDENTITIES.length] ?? "";
    peers.set(key, identity);
    return identity;
  };
  const server = await startServer(t, ({ path }, response) => {
    if (path === "/metrics") {
      const identity = identityOf(response);
      response.writeHead(200, closes ? { connection: "close" } : {}).end(metricsOf(identity));
      return;
    }
    counts.health++;
    const isPaired = peers.has(response.socket ?? {});
    counts.unpaired += isPaired ? 0 : 1;
    const isFailing = isPaired && identityOf(response) === unhealthy;
    response.writeHead(isFailing ? 500 : 200).end(isFailing ? FAILS : WORKS);
  });
  const transport = server.transport();
  const open: Extract<ApiServers, { mode: "sampled" }>["open"] = (onConnect) =>
    new ApiClient(transport.another({ onConnect }));
  const context = { clock: systemClock, signal: new AbortController().signal };
  const look = (): Promise<readonly Answered[]> =>
    answersOf(context, { mode: "sampled", server: server.url, open, identities: IDENTITIES });
  return { counts, look };
}

await tap.test("answersOf() takes metrics and health of an API server from one connection", async (t) => {
  const { counts, look } = await setting(t, {});
  t.match(agreementOf(await look(), { identities: IDENTITIES }), { configHash: CONFIG, hasKms: true });
  t.ok(counts.health >= 2);
  t.equal(counts.unpaired, 0);
});

await tap.test("answersOf() finds no agreement while the KMS plugin of one of two API servers fails", async (t) => {
  const { counts, look } = await setting(t, { unhealthy: "lease-b" });
  for (let looks = 0; looks < 10; looks++) {
    const answers = await look();
    t.match(agreementOf(answers, { identities: IDENTITIES }), { reason: /kms-providers failed/, isUntold: true });
  }
  t.equal(counts.unpaired, 0);
});

await tap.test("answersOf() believes no health that another connection than that of the metrics tells", async (t) => {
  const { counts, look } = await setting(t, { closes: true });
  t.match(agreementOf(await look(), { identities: IDENTITIES }), {
    reason: /connection was lost/,
    isUntold: true,
  });
  t.equal(counts.unpaired, counts.health, "each connection ends after the metrics");
});
