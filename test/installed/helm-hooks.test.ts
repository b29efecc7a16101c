import { join } from "node:path";
import t from "tap";
import { WEBHOOK_NAME } from "../../src/freeze/rule.ts";
import { CRDS, WEBHOOK_CONFIGURATIONS } from "../api-client.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { startController } from "../integration/controller.ts";
import { NAMESPACE, startAsServiceAccount } from "../integration/installation.ts";
import { withPodsRunning } from "../integration/job-runner.ts";
import { ensureHelm, HELM_VERSIONS, runHelm } from "./helm.ts";

const CHART = join(import.meta.dirname, "../../deploy/chart");
const programs = new Map<string, string>();
for (const version of HELM_VERSIONS) programs.set(version, await ensureHelm(version));

for (const [version, program] of programs) {
  await t.test(`helm ${version} installs, upgrades and uninstalls without a hook`, async (t) => {
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
    t.same(installed.ends, [], "no Job");

    const upgraded = await helm("upgrade", "ksvm", CHART, "--set", "replicas=3");
    t.match(upgraded.result, /STATUS: deployed/);
    t.same(upgraded.ends, []);

    const kubeconfig = await startAsServiceAccount(cluster, "storage-migrator");
    const replica = await startController(t, cluster, { kubeconfig });
    const again = await helm("upgrade", "ksvm", CHART, "--set", "replicas=2");
    t.match(again.result, /STATUS: deployed/, "and so does one while a controller keeps what the chart installed");
    const { webhooks } = await cluster.api.get<{
      readonly webhooks: readonly { readonly clientConfig: { readonly caBundle?: string } }[];
    }>(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME });
    t.ok(
      webhooks.every(({ clientConfig }) => clientConfig.caBundle !== undefined),
      "API servers trust the certificates that it made, also after that",
    );
    t.match(await cluster.ksvm(["init", "--yes"]), { code: 0 });
    const mended = await helm("upgrade", "ksvm", CHART, "--set", "crds.keep=false");
    t.match(mended.result, /STATUS: deployed/, "what ksvm wrote is still the release's");
    await replica.stop();
    const removed = await helm("uninstall", "ksvm");
    t.match(removed.result, /uninstalled/);
    t.notMatch(removed.result, /not owned by this release/);
    t.equal(await cluster.api.find(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME }), undefined);
    await eventually(async () => (await cluster.api.list(CRDS, {})).length === 0, "the CRDs are gone");
  });
}
