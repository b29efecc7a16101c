import t from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { type Access, describeAccess, isAllowed } from "../../src/kube/access.ts";
import { loadKubeConfig } from "../../src/kube/connect/config.ts";
import { CRDS, LEASES, MIGRATIONS, POLICIES, SECRETS, WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import { Transport } from "../../src/kube/transport.ts";
import { CERTIFICATE_SECRET, WEBHOOK_NAME } from "../../src/api/names.ts";
import { caBundleOf } from "../../src/certs/ca-bundle.ts";
import type { SecretObject } from "../../src/certs/secret-contents.ts";
import { WARN_POLICY_NAME } from "../../src/webhook/warn-policy.ts";
import { KSVM, startProgram } from "../processes/program.ts";
import { assertNoTraces } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { applyAll, NAMESPACE, overlayOf, startAsServiceAccount } from "./installation.ts";
import { render } from "./kubectl.ts";
import { freePort, ONLY_CUSTOM, spawnController } from "./replica.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;
const documents = await render(overlayOf(t, ["deploy/base", "deploy/components/separate-webhook"]));
await applyAll(api, documents);

interface Deployment {
  readonly spec: {
    readonly template: {
      readonly metadata: { readonly labels: Readonly<Record<string, string>> };
      readonly spec: {
        readonly serviceAccountName: string;
        readonly containers: readonly {
          readonly args: readonly string[];
          readonly ports: readonly { readonly name: string }[];
        }[];
      };
    };
  };
}

function deployment(name: string): Deployment["spec"]["template"] {
  const found = documents.find(({ kind, metadata }) => kind === "Deployment" && metadata.name === name);
  if (found === undefined) throw new Error(`Cannot find Deployment "${name}"`);
  return (found as unknown as Deployment).spec.template;
}

await t.test("the Service leads to the webhook's own pods, which have an account of their own", async (t) => {
  const service = documents.find(({ kind, metadata }) => kind === "Service" && metadata.name === "ksvm-webhook");
  const webhook = deployment("ksvm-webhook");
  t.same((service as unknown as { spec: { selector: object } }).spec.selector, webhook.metadata.labels);
  t.equal(webhook.spec.serviceAccountName, "storage-migrator-webhook");
  const [controller] = deployment("ksvm-controller").spec.containers;
  t.ok(controller?.args.includes("--webhook=off"));
  t.same(
    controller?.ports.map(({ name }) => name),
    ["health"],
  );
});

await t.test(
  "a CRD is migrated by a controller that serves nothing, guarded by a webhook that may do nothing else",
  async (t) => {
    const [webhookPort, unused, healthPort] = [await freePort(), await freePort(), await freePort()];
    const asWebhook = await startAsServiceAccount(cluster, "storage-migrator-webhook");
    const asController = await startAsServiceAccount(cluster, "storage-migrator");
    const url = `--webhook-url=https://127.0.0.1:${webhookPort}/validate`;
    const args = [
      ...(deployment("ksvm-webhook").spec.containers[0]?.args ?? []),
      `--kubeconfig=${asWebhook}`,
      "--webhook-host=127.0.0.1",
      `--webhook-port=${webhookPort}`,
      "--health-host=127.0.0.1",
      `--health-port=${healthPort}`,
      "--shutdown-drain=1s",
      url,
    ].filter((arg, index, all) => all.findLastIndex((other) => flagOf(other) === flagOf(arg)) === index);
    const webhook = startProgram(t, process.execPath, [KSVM, ...args], { stdout: "ignore", withoutTap: true });
    const flags = [...ONLY_CUSTOM, "--webhook=off"];
    const controller = await spawnController(t, { kubeconfig: asController }, { webhookPort: unused, flags });

    const isReady = async (): Promise<boolean> =>
      fetch(`http://127.0.0.1:${healthPort}/readyz`).then(
        ({ ok }) => ok,
        () => false,
      );
    await eventually(isReady, `the webhook is ready:\n${webhook.stderr}`).catch((error: unknown) => {
      t.comment(`${webhook.stderr}\n${controller.log()}`);
      throw error;
    });
    t.equal((await controller.health("/readyz")).status, 200);
    const kind = new TestKind("apart");
    await cluster.createStale(kind, 10);
    const isPruned = async (): Promise<boolean> => storedVersionsOf(await cluster.crd(kind)).join() === "v1";
    await eventually(isPruned, "storedVersions is pruned", 180_000).catch((error: unknown) => {
      t.comment(`${webhook.stderr}\n${controller.log()}`);
      throw error;
    });
    t.same(await cluster.storedAs(kind), { v1: 10 });
    t.match(
      await (await fetch(`http://127.0.0.1:${healthPort}/metrics`)).text(),
      /ksvm_webhook_reviews_total{[^}]*denied[^}]*} [1-9]/,
    );
    await t.rejects(fetch(`https://127.0.0.1:${unused}/validate`), "the controller serves no webhook");
    controller.kill("SIGTERM");
    webhook.signal("SIGTERM");
    t.equal(await controller.ended, 0, controller.log());
    t.equal((await webhook.ended).code, 0, webhook.stderr);
    await assertNoTraces(t, cluster, kind);
    t.notMatch(webhook.stderr + controller.log(), /forbidden/i, "RBAC refused nothing");
  },
);

for (const [which, further] of [
  ["", []],
  [" and prunes nothing", ["--manage-stored-versions=false"]],
] as const)
  await t.test(
    `a Secret that is lost is filled within a minute by a controller that serves nothing${which}`,
    async (t) => {
      const kubeconfig = await startAsServiceAccount(cluster, "storage-migrator");
      const flags = [...ONLY_CUSTOM, "--webhook=off", ...further];
      const controller = await spawnController(t, { kubeconfig }, { webhookPort: await freePort(), flags });
      const ref = { namespace: NAMESPACE, name: CERTIFICATE_SECRET };
      const isFilled = async (): Promise<boolean> =>
        caBundleOf(await api.find<SecretObject>(SECRETS, ref)) !== undefined;
      await eventually(async () => controller.isLeading() && (await isFilled()), "there are certificates");
      await api.delete(SECRETS, ref);
      // As an administrator does, or the next sync of a GitOps tool.
      await applyAll(
        api,
        documents.filter(({ kind, metadata }) => kind === "Secret" && metadata.name === CERTIFICATE_SECRET),
      );
      t.notOk(await isFilled(), "negative control: the manifests have no certificates");
      await eventually(isFilled, "there are certificates again");
      controller.kill("SIGTERM");
      t.equal(await controller.ended, 0, controller.log());
    },
  );

/** The name of a flag; another word is itself. */
function flagOf(arg: string): string {
  return arg.split("=")[0] ?? arg;
}

await t.test(
  "the webhook of its own may read one Secret and keep its own configuration, and nothing else",
  async (t) => {
    const needed: readonly Access[] = [
      ...["get", "watch"].map((verb) => ({
        verb,
        resource: SECRETS,
        namespace: NAMESPACE,
        name: "ksvm-webhook-certificates",
      })),
      ...["get", "watch", "create", "patch"].map((verb) => ({
        verb,
        resource: WEBHOOK_CONFIGURATIONS,
        name: WEBHOOK_NAME,
      })),
      ...["get", "watch", "create", "patch"].map((verb) => ({ verb, resource: POLICIES, name: WARN_POLICY_NAME })),
    ];
    const tooMuch: readonly Access[] = [
      ...["get", "list", "watch", "patch"].map((verb) => ({ verb, resource: CRDS })),
      ...["list", "patch", "create"].map((verb) => ({ verb, resource: MIGRATIONS })),
      ...["get", "list", "patch", "create"].map((verb) => ({ verb, resource: SECRETS, namespace: NAMESPACE })),
      ...["update", "patch", "delete"].map((verb) => ({
        verb,
        resource: SECRETS,
        namespace: NAMESPACE,
        name: "ksvm-webhook-certificates",
      })),
      ...["get", "create"].map((verb) => ({ verb, resource: LEASES, namespace: NAMESPACE })),
      { verb: "delete", resource: WEBHOOK_CONFIGURATIONS, name: WEBHOOK_NAME },
      { verb: "patch", resource: WEBHOOK_CONFIGURATIONS, name: "of-another-owner" },
      { verb: "delete", resource: POLICIES, name: WARN_POLICY_NAME },
      { verb: "patch", resource: POLICIES, name: "of-another-owner" },
      { verb: "list", resource: { group: "", resource: "pods" } },
    ];
    const transport = new Transport(
      loadKubeConfig({ kubeconfig: await startAsServiceAccount(cluster, "storage-migrator-webhook") }),
    );
    t.teardown(() => transport.close());
    const allowed: string[] = [];
    for (const access of [...needed, ...tooMuch]) {
      if (await isAllowed(transport, access)) allowed.push(describeAccess(access));
    }
    t.same(allowed, needed.map(describeAccess));
  },
);
