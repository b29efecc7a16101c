import { X509Certificate } from "node:crypto";
import t from "tap";
import { createNamespace, ensure, installOwn, SETTINGS } from "../integration/certs-fixture.ts";
import { Cluster } from "../integration/cluster.ts";
import { createFrozen, describeLoad, StorageChangeLoad, untilDenied } from "../integration/storage-change-load.ts";
import { IS_LONG } from "./random.ts";

const ROTATIONS = IS_LONG ? 20 : 5;

await t.test(`${ROTATIONS} rotations under a steady load of storage changes: every answer is a denial`, async (t) => {
  const cluster = await Cluster.start(t);
  await createNamespace(cluster.api);
  const webhook = await installOwn(t, cluster);
  const kinds = [await createFrozen(cluster, "small"), await createFrozen(cluster, "large", 1_024)];
  for (const kind of kinds) await untilDenied(cluster, kind);
  const settings = { ...SETTINGS, replicaEndpoints: [{ host: "127.0.0.1", port: webhook.port }] };
  const serials = new Set<string>();
  const [denials, handshakes] = [webhook.denials(), webhook.handshakes()];
  const load = StorageChangeLoad.start(t, cluster, kinds, 10);
  const startedAt = performance.now();
  for (let round = 0; round < ROTATIONS; round++) {
    t.match(await ensure(cluster, { rotateNow: true, wait: true, settings }), { state: "current" });
    serials.add(new X509Certificate(webhook.certificate.current?.certPem ?? "").serialNumber);
  }
  const seconds = Math.round((performance.now() - startedAt) / 1_000);
  const report = await load.stop();
  console.error(
    `  ${ROTATIONS} rotations in ${seconds} s: ${describeLoad(report)}, ${webhook.denials() - denials} counted by the ` +
      `webhook, ${webhook.handshakes() - handshakes} handshakes`,
  );
  t.equal(serials.size, ROTATIONS);
  t.same(report.others, []);
  t.equal(report.denied, report.sent);
  t.equal(webhook.denials() - denials, report.sent, "the webhook's counter equals the number sent");
});
