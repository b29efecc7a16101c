import type { Test } from "tap";
import type { NewObject } from "../../src/kube/client.ts";
import type { Cluster } from "./cluster.ts";
import { startAsServiceAccount } from "./installation.ts";
import { freePort, ONLY_CUSTOM, type Replica, spawnController } from "./replica.ts";

interface Deployment {
  readonly spec: {
    readonly template: { readonly spec: { readonly containers: readonly [{ readonly args: string[] }] } };
  };
}

/**
 * Starts the controller of an overlay of deploy/: with its rights, and with its flags that concern certificates. API servers call it on
 * loopback, since nothing here leads to the Service.
 */
export async function spawnFromOverlay(
  t: Test,
  cluster: Cluster,
  documents: readonly NewObject[],
): Promise<{ readonly replica: Replica; readonly port: number }> {
  const deployment = documents.find(
    ({ kind, metadata }) => kind === "Deployment" && metadata.name === "ksvm-controller",
  );
  if (deployment === undefined) throw new Error('Cannot find Deployment "ksvm-controller" in the overlay');
  const { args } = (deployment as unknown as Deployment).spec.template.spec.containers[0];
  const flags = [...ONLY_CUSTOM, ...args.filter((arg) => arg.startsWith("--cert"))];
  const port = await freePort();
  const kubeconfig = await startAsServiceAccount(cluster, "storage-migrator");
  return { replica: await spawnController(t, { kubeconfig }, { webhookPort: port, flags }), port };
}
