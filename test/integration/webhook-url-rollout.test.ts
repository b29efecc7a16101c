import t from "tap";
import { Cluster, eventually } from "./cluster.ts";
import { startAsServiceAccount } from "./installation.ts";
import { kubectlOf } from "./kubectl.ts";
import { freePort, ONLY_CUSTOM, spawnController, untilReady } from "./replica.ts";

const cluster = await Cluster.start(t);
const kubectl = await kubectlOf(cluster);

await t.test(
  "a replica that is called by another --webhook-url becomes ready while the one that leads has the old one",
  async (t) => {
    t.match(await kubectl(["apply", "--server-side", "-k", "deploy/base"]), { code: 0 });
    const kubeconfig = await startAsServiceAccount(cluster, "storage-migrator");
    const before = await spawnController(
      t,
      { kubeconfig },
      { webhookPort: await freePort(), byService: true, flags: ONLY_CUSTOM },
    );
    await untilReady(before);
    await eventually(async () => before.isLeading(), `the first replica leads:\n${before.log()}`);
    const after = await spawnController(t, { kubeconfig }, { webhookPort: await freePort(), flags: ONLY_CUSTOM });
    const isLacking = async (): Promise<boolean> => {
      const { text } = await after.health("/readyz");
      return /the serving certificate is not valid for 127\.0\.0\.1/.test(text);
    };
    await eventually(isLacking, `negative control: its certificate lacks the name:\n${after.log()}`);
    await untilReady(after);
    t.ok(before.isLeading(), "as in a rollout, which ends the old one after the new one is ready");
    t.equal((await before.health("/readyz")).status, 200);
    t.match(after.log(), /renewed the serving certificate: the serving certificate lacks a name/);
    for (const replica of [after, before]) {
      replica.kill("SIGTERM");
      t.equal(await replica.ended, 0, replica.log());
    }
  },
);
