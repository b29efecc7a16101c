import { join } from "node:path";
import t from "tap";
import { WEBHOOK_NAME } from "../../src/api/names.ts";
import type { NewObject } from "../../src/kube/client.ts";
import { WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import { Cluster } from "../integration/cluster.ts";
import { NAMESPACE, startAsServiceAccount } from "../integration/installation.ts";
import { withPodsRunning } from "../integration/job-runner.ts";
import { freePort, spawnController, untilReady } from "../integration/replica.ts";
import { ensureHelm, HELM_VERSIONS, runHelm } from "./helm.ts";

const CHART = join(import.meta.dirname, "../../deploy/chart");
const SECRETS = { group: "", version: "v1", resource: "secrets" } as const;

const programs = new Map<string, string>();
for (const version of HELM_VERSIONS) programs.set(version, await ensureHelm(version));

for (const [version, program] of programs) {
  await t.test(`helm ${version} waits for the hook that makes the certificates, and tests the release`, async (t) => {
    const cluster = await Cluster.start(t);
    const helm = (...args: readonly string[]) =>
      withPodsRunning(cluster, NAMESPACE, () =>
        runHelm(program, [...args, "--namespace", NAMESPACE], cluster.kubeconfig).then(
          (text) => text,
          (error: unknown) => String(error),
        ),
      );
    const installed = await helm("install", "ksvm", CHART, "--create-namespace");
    t.match(installed.result, /STATUS: deployed/);
    t.match(installed.ends, { length: 1, 0: { code: 0 } }, "one Job, with the rights that the chart gives it");
    const secrets = await cluster.api.list<NewObject>(SECRETS, { namespace: NAMESPACE });
    t.ok(
      secrets.some(({ metadata }) => metadata.name === "ksvm-webhook-certificates"),
      "the certificates are there",
    );
    const { webhooks } = await cluster.api.get<{
      readonly webhooks: readonly { readonly clientConfig: { readonly caBundle?: string } }[];
    }>(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME });
    t.ok(
      webhooks.every(({ clientConfig }) => clientConfig.caBundle !== undefined),
      "and API servers trust them",
    );

    const failed = await helm("test", "ksvm");
    t.notMatch(failed.result, /Phase: +Succeeded/, "negative control: no controller runs");
    t.match(failed.ends, {
      length: 1,
      0: { code: 1, stderr: /Cannot see a controller that leads within 15s/ },
    });

    const upgraded = await helm("upgrade", "ksvm", CHART, "--set", "replicas=3");
    t.match(upgraded.result, /STATUS: deployed/);
    t.match(upgraded.ends, { length: 1, 0: { code: 0 } }, "an upgrade runs the hook again");

    const kubeconfig = await startAsServiceAccount(cluster, "storage-migrator");
    const replica = await spawnController(t, { kubeconfig }, { webhookPort: await freePort(), byService: true });
    await untilReady(replica);
    const tested = await helm("test", "ksvm");
    t.match(tested.result, /Phase: +Succeeded/);
    t.match(tested.ends, { length: 1, 0: { code: 0, stdout: "a controller leads\n" } });
    const again = await helm("upgrade", "ksvm", CHART, "--set", "replicas=2");
    t.match(again.result, /STATUS: deployed/, "and so does one while a controller keeps what the chart installed");
    t.match(again.ends, { length: 1, 0: { code: 0 } });
    t.notMatch(replica.log(), /another owner filled it/);
    t.match(await cluster.ksvm(["guard", "enable"]), { code: 0 }, "the guard of the chart is ksvm's own");
  });
}
