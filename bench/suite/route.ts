import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { issueSelfSigned } from "../../test/certs/self-signed.ts";
import type { Cluster } from "../../test/integration/cluster.ts";
import { HelperProcess } from "./helper-process.ts";

/** How a contender gets to the API server. */
export interface Route {
  readonly kubeconfig: string;
  /** The address of the API server. */
  readonly url: string;
}

/** Without anything between. */
export function directRoute({ controlPlane, kubeconfig }: Cluster): Route {
  return { kubeconfig, url: controlPlane.apiservers[0]?.url ?? "" };
}

/** As from so far away. */
export async function withDistance(
  cluster: Cluster,
  roundTripMs: number,
  work: (route: Route) => Promise<void>,
): Promise<void> {
  const direct = directRoute(cluster);
  if (roundTripMs === 0) {
    await work(direct);
    return;
  }
  const { hostname, port } = new URL(direct.url);
  const proxy = HelperProcess.start("far-away.ts", [hostname, port, String(roundTripMs)]);
  try {
    const url = `https://127.0.0.1:${await proxy.firstLine()}`;
    await work(routeTo(cluster, url, `far-${roundTripMs}`));
  } finally {
    await proxy.end();
  }
}

/** Through a proxy that refuses a share of the writes. */
export async function withRefusals(
  cluster: Cluster,
  share: number,
  work: (route: Route) => Promise<void>,
): Promise<void> {
  const { controlPlane } = cluster;
  const names = { dnsNames: ["localhost"], ipAddresses: ["127.0.0.1"] };
  const { caPem, certPem, keyPem } = await issueSelfSigned({ ...names, now: new Date(), lifetimeMs: 86_400_000 });
  const rough = { target: directRoute(cluster).url, ca: controlPlane.ca, cert: certPem, key: keyPem, share };
  const proxy = HelperProcess.start("rough-server.ts", [JSON.stringify(rough)]);
  try {
    const url = `https://127.0.0.1:${await proxy.firstLine()}`;
    await work(routeTo(cluster, url, `rough-${share}`, caPem));
  } finally {
    await proxy.end();
  }
}

function routeTo(cluster: Cluster, url: string, name: string, ca?: string): Route {
  const { controlPlane } = cluster;
  const config = JSON.parse(readFileSync(cluster.kubeconfig, "utf8")) as {
    clusters: { cluster: { server: string; "certificate-authority-data": string } }[];
  };
  for (const entry of config.clusters) {
    entry.cluster.server = url;
    if (ca !== undefined) entry.cluster["certificate-authority-data"] = Buffer.from(ca).toString("base64");
  }
  const kubeconfig = join(controlPlane.dir, `${name}.kubeconfig`);
  writeFileSync(kubeconfig, JSON.stringify(config), { mode: 0o600 });
  return { kubeconfig, url };
}
