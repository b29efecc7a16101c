import { X509Certificate } from "node:crypto";
import { pino } from "pino";
import t from "tap";
import { issueCa, issueServing } from "../../src/certs/issue.ts";
import { decoded, type SecretObject } from "../../src/certs/secret-contents.ts";
import { dnsNamesOf } from "../../src/certs/service-names.ts";
import { systemClock } from "../../src/clock.ts";
import { MERGE_PATCH, SECRETS } from "../../src/kube/resources.ts";
import {
  createNamespace,
  ensure,
  NAMESPACE,
  readTheSecret,
  SECRET,
  serveFromSecret,
  SETTINGS,
} from "./certs-fixture.ts";
import { Cluster, eventually } from "./cluster.ts";
import { startWebhookPart } from "./started-webhook-part.ts";
import { clockAhead } from "./trigger-harness.ts";

// The API server's clock is right here. What is wrong is the clock of a process, or was that of the one that issued.

const DAY_MS = 86_400_000;
const cluster = await Cluster.start(t);
const { api } = cluster;
await createNamespace(api);
await ensure(cluster);

function servedBy(secret: SecretObject): X509Certificate {
  return new X509Certificate(decoded(secret, "tls.crt"));
}

/** Puts into the Secret what a process issued whose clock was ahead. */
async function issueAhead(ms: number): Promise<void> {
  const now = new Date(systemClock.now() + ms);
  const ca = await issueCa({ now, lifetimeMs: SETTINGS.caLifetimeMs });
  const names = { dnsNames: dnsNamesOf(SETTINGS), ipAddresses: ["127.0.0.1"] };
  const serving = await issueServing({ ca, now, lifetimeMs: SETTINGS.servingLifetimeMs, ...names });
  const texts = {
    "ca.crt": ca.certPem,
    "ca.key": ca.keyPem,
    "tls.crt": serving.certPem,
    "tls.key": serving.keyPem,
  };
  const data = Object.fromEntries(Object.entries(texts).map(([key, text]) => [key, btoa(text)]));
  await api.patch(SECRETS, { namespace: NAMESPACE, name: SECRET }, { type: MERGE_PATCH, body: { data } });
}

for (const days of [400, 30, -400]) {
  await t.test(`a leader whose clock is ${days} days ahead replaces nothing, and says why`, async (t) => {
    const before = await readTheSecret(cluster);
    const clock = clockAhead(days * DAY_MS);
    const warnings: string[] = [];
    const logger = pino({ level: "warn" }, { write: (line: string) => warnings.push(line) });
    t.match(await ensure(cluster, { clock, logger }), { state: "current" }, "by the API server's clock nothing is due");
    t.match(warnings.join(""), /cannot be replaced until the clocks agree/);
    const side = days > 0 ? "ahead of" : "behind";
    await t.rejects(ensure(cluster, { clock, rotateNow: true }), {
      code: "ClocksDisagree",
      message: new RegExp(`the clock of this machine is ${Math.abs(days)} days ${side} the API server's`),
    });
    t.equal((await readTheSecret(cluster)).metadata.resourceVersion, before.metadata.resourceVersion);
  });
}

await t.test(
  "a leader whose clock is wrong creates certificates where there are none, by the API server's clock",
  async (t) => {
    const settings = { ...SETTINGS, secret: "created-by-a-wrong-clock" };
    t.match(await ensure(cluster, { clock: clockAhead(400 * DAY_MS), settings }), { state: "current" });
    const { validFromDate, validToDate } = servedBy(await readTheSecret(cluster, settings.secret));
    const now = systemClock.now();
    t.ok(validFromDate.getTime() < now && validToDate.getTime() > now, validFromDate.toISOString());
  },
);

await t.test("a pair that becomes valid in 30 days replaces no working one, and is replaced", async (t) => {
  const webhook = await serveFromSecret(t, cluster, { resyncMs: 100 });
  await eventually(async () => webhook.certificate.current !== undefined, "the webhook has a certificate");
  const working = webhook.certificate.current?.certPem;
  const outcomes: string[] = [];
  webhook.certificate.subscribe(({ result }) => outcomes.push(result));
  await issueAhead(30 * DAY_MS);
  await eventually(async () => outcomes.includes("rejected"), "the pair is turned down");
  t.equal(webhook.certificate.current?.certPem, working);
  t.equal(webhook.certificate.unusable(), undefined);
  t.match(await ensure(cluster), { state: "current" });
  await eventually(async () => webhook.certificate.current?.certPem !== working, "a pair that is valid is served");
  t.same(outcomes, ["rejected", "loaded"]);
  t.ok(servedBy(await readTheSecret(cluster)).validFromDate.getTime() <= systemClock.now());
});

for (const days of [400, -400]) {
  await t.test(`a replica whose clock is ${days} days ahead serves what API servers take for valid`, async (t) => {
    const part = startWebhookPart(t, api, { clock: clockAhead(days * DAY_MS) });
    await eventually(async () => part.ready() === undefined, `it is ready: ${part.ready()}`);
  });
}
