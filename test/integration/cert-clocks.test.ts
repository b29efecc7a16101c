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
const HOUR_MS = 3_600_000;
const cluster = await Cluster.start(t);
const { api } = cluster;
await createNamespace(api);
await ensure(cluster);

function servedBy(secret: SecretObject): X509Certificate {
  return new X509Certificate(decoded(secret, "tls.crt"));
}

/** Puts into the Secret what a process issued whose clock was ahead, or that issued it some time ago. */
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
    t.match(warnings.join(""), /only where both clocks say that they are due/);
    t.equal((await readTheSecret(cluster)).metadata.resourceVersion, before.metadata.resourceVersion);
  });
}

await t.test(
  "a certificate that is due by the API server's clock alone is left as it is, with the reason",
  async (t) => {
    await issueAhead(-5 * HOUR_MS);
    const before = await readTheSecret(cluster);
    await t.rejects(ensure(cluster, { clock: clockAhead(-3 * HOUR_MS) }), {
      code: "ClocksDisagree",
      message: /the clock of this machine is 3 hours behind the API server's/,
    });
    t.equal((await readTheSecret(cluster)).metadata.resourceVersion, before.metadata.resourceVersion);
  },
);

for (const hours of [-0.5, 0.5, 400 * 24, -400 * 24]) {
  await t.test(`a leader whose clock is ${hours} hours ahead renews what is due by both clocks`, async (t) => {
    await issueAhead(-5 * HOUR_MS);
    const before = await readTheSecret(cluster);
    t.match(await ensure(cluster, { clock: clockAhead(hours * HOUR_MS) }), { state: "current" });
    const after = await readTheSecret(cluster);
    t.equal(decoded(after, "ca.crt"), decoded(before, "ca.crt"), "by the CA that is trusted");
    const { validFromDate, validToDate } = servedBy(after);
    t.not(servedBy(before).fingerprint256, servedBy(after).fingerprint256);
    const times = [systemClock.now(), systemClock.now() + (Math.abs(hours) < 1 ? hours * HOUR_MS : 0)];
    for (const time of times) {
      t.ok(validFromDate.getTime() < time && validToDate.getTime() > time, validFromDate.toISOString());
    }
  });

  await t.test(`a rotation that is asked for ends where the clock is ${hours} hours ahead, with overlap`, async (t) => {
    const before = await readTheSecret(cluster);
    const steps: string[] = [];
    const onStep = (text: string) => steps.push(text);
    const options = { clock: clockAhead(hours * HOUR_MS), rotateNow: true, wait: true, onStep };
    t.match(await ensure(cluster, options), { state: "current" });
    t.match(steps.join("; "), /added a new CA.*waiting.*from the new CA.*waiting.*dropped the old CA/);
    t.not(decoded(await readTheSecret(cluster), "ca.crt"), decoded(before, "ca.crt"));
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
