import { X509Certificate } from "node:crypto";
import t from "tap";
import { createNamespace, ensure, installOwn, SETTINGS } from "../integration/certs-fixture.ts";
import { Cluster } from "../integration/cluster.ts";
import { createFrozen, describeLoad, StorageChangeLoad, untilDenied } from "../integration/storage-change-load.ts";
import { IS_LONG } from "./random.ts";

const ROTATIONS = IS_LONG ? 20 : 3;

await t.test(`${ROTATIONS} rotations under a steady load of storage changes: every answer is a denial`, async (t) => {
  const cluster = await Cluster.start(t);
  await createNamespace(cluster.api);
  const webhook = await installOwn(t, cluster);
  const small = await createFrozen(cluster, "small");
  const large = await createFrozen(cluster, "large", 1_024);
  for (const kind of [small, large]) await untilDenied(cluster, kind);
  const settings = { ...SETTINGS, replicaEndpoints: [{ host: "127.0.0.1", port: webhook.port }] };
  const serials = new Set<string>();
  const denials = await webhook.denials();
  const load = StorageChangeLoad.start(t, cluster, [small, small, small, large], 10);
  const startedAt = performance.now();
  for (let round = 0; round < ROTATIONS; round++) {
    t.match(await ensure(cluster, { rotateNow: true, wait: true, settings }), { state: "current" });
    serials.add(new X509Certificate(webhook.certificate.current?.certPem ?? "").serialNumber);
  }
  const seconds = Math.round((performance.now() - startedAt) / 1_000);
  const report = await load.stop();
  const counted = (await webhook.denials()) - denials;
  console.error(`  ${ROTATIONS} rotations in ${seconds} s: ${describeLoad(report)}, ${counted} counted by the webhook`);
  t.equal(serials.size, ROTATIONS);
  t.same(report.others, []);
  t.equal(report.denied, report.sent);
  t.equal(counted, report.sent, "the webhook's counter equals the number sent");
});
