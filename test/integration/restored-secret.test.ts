import pino from "pino";
import t, { type Test } from "tap";
import { caBundleOf, findConfiguration, publishedBundleOf } from "../../src/certs/ca-bundle.ts";
import { issueCa, issueServing } from "../../src/certs/issue.ts";
import { keepCertificates } from "../../src/certs/keep-certificates.ts";
import { systemClock } from "../../src/clock.ts";
import { MERGE_PATCH, SECRETS } from "../../src/kube/resources.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { Waker } from "../../src/retry/waker.ts";
import { freePort } from "./replica.ts";
import { createNamespace, NAMESPACE, readTheSecret, SECRET, SETTINGS } from "./certs-fixture.ts";
import { Cluster, eventually } from "./cluster.ts";
import { startWebhookPart } from "./started-webhook-part.ts";
import { createFrozen, describeLoad, StorageChangeLoad, untilDenied } from "./storage-change-load.ts";

const HOUR_MS = 3_600_000;
/** Storage changes. */
const PER_SECOND = 20;
const cluster = await Cluster.start(t);
const { api } = cluster;
await createNamespace(api);
const port = await freePort();
const lost = new Waker();
startWebhookPart(t, api, { lost, webhook: { port, url: `https://127.0.0.1:${port}/validate` } });
keepAsLeader(t);
const kind = await createFrozen(cluster, "restored");
await untilDenied(cluster, kind);

/** What the replica that leads does for the certificates. It ends with the test. */
function keepAsLeader(t: Test): void {
  const abort = new AbortController();
  const ended = keepCertificates({
    settings: { ...SETTINGS, replicaEndpoints: [] },
    client: api,
    findApiServers: async () => ({ mode: "each", clients: [api] }),
    clock: systemClock,
    retrier: new Retrier({ clock: systemClock, random: Math.random, maxIdleMs: 30_000 }),
    logger: pino({ level: "silent" }),
    signal: abort.signal,
    lost,
  });
  t.teardown(async () => {
    abort.abort();
    await ended;
  });
}

/** A copy of the Secret from before a rotation: its CA still signs, and what that signed has expired. */
async function oldCopy(): Promise<Readonly<Record<string, string>>> {
  const now = new Date(Date.now() - 2 * HOUR_MS);
  const ca = await issueCa({ now, lifetimeMs: 24 * HOUR_MS });
  const names = { dnsNames: ["localhost"], ipAddresses: ["127.0.0.1"] };
  const { certPem, keyPem } = await issueServing({ ca, now, lifetimeMs: HOUR_MS, ...names });
  return { "ca.crt": ca.certPem, "ca.key": ca.keyPem, "tls.crt": certPem, "tls.key": keyPem };
}

/** How many of them may fail, until API servers have a CA that had to be made: what two seconds take. */
const UNTIL_FOLLOWED = 2 * PER_SECOND;

const damages: readonly [what: string, texts: Readonly<Record<string, string | null>>, gap: number][] = [
  ["was overwritten with an old copy", await oldCopy(), 0],
  ["got another ca.crt", { "ca.crt": (await oldCopy())["ca.crt"] ?? "" }, UNTIL_FOLLOWED],
  ["lost tls.crt and tls.key", { "tls.crt": null, "tls.key": null }, 0],
];

for (const [what, texts, gap] of damages) {
  await t.test(`storage changes are judged where the Secret ${what}, and it is repaired within a minute`, async (t) => {
    const load = StorageChangeLoad.start(t, cluster, [kind], PER_SECOND);
    const encoded = Object.entries(texts).map(([key, text]) => [key, text === null ? null : btoa(text)]);
    const body = { data: Object.fromEntries(encoded) };
    await systemClock.sleep(1_000);
    await api.patch(SECRETS, { namespace: NAMESPACE, name: SECRET }, { type: MERGE_PATCH, body });
    const startedAt = performance.now();
    const isRepaired = async (): Promise<boolean> => {
      const secret = await readTheSecret(cluster);
      const configuration = await findConfiguration(api, SETTINGS.webhookConfiguration, new AbortController().signal);
      const isNew = Object.entries(body.data).some(([key, value]) => (secret.data?.[key] ?? null) !== value);
      return isNew && publishedBundleOf(configuration) === caBundleOf(secret);
    };
    await eventually(isRepaired, "the Secret is repaired", 60_000);
    const ms = Math.round(performance.now() - startedAt);
    await systemClock.sleep(3_000);
    const report = await load.stop();
    t.comment(`repaired after ${ms} ms; ${describeLoad(report)}; ${report.others.join("; ")}`);
    t.ok(report.denied > 60, `${report.denied} were judged`);
    t.ok(report.others.length <= gap, "and no API server refused what is served");
  });
}
