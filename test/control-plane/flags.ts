import { join } from "node:path";

/** The files in the folder of the control plane. */
export function filesIn(dir: string) {
  return {
    tokens: join(dir, "tokens.csv"),
    certificate: join(dir, "serving.crt"),
    privateKey: join(dir, "serving.key"),
    ca: join(dir, "ca.crt"),
    serviceAccountKey: join(dir, "service-account.key"),
    serviceAccountPublicKey: join(dir, "service-account.pub"),
    etcdData: join(dir, "etcd-data"),
  };
}

/** The flags of a single etcd on two loopback ports. */
export function etcdArgs(dir: string, clientPort: number, peerPort: number): string[] {
  const client = `http://127.0.0.1:${clientPort}`;
  const peer = `http://127.0.0.1:${peerPort}`;
  return [
    "--name=test",
    `--data-dir=${filesIn(dir).etcdData}`,
    `--listen-client-urls=${client}`,
    `--advertise-client-urls=${client}`,
    `--listen-peer-urls=${peer}`,
    `--initial-advertise-peer-urls=${peer}`,
    `--initial-cluster=test=${peer}`,
    // Safe here: the page cache survives a killed process, only a crash of the machine would lose writes.
    "--unsafe-no-fsync",
  ];
}

/** The flag for feature gates, or none. */
export function featureGateArgs(gates: Readonly<Record<string, boolean>> = {}): string[] {
  return Object.keys(gates).length === 0 ? [] : [`--feature-gates=${pairs(gates)}`];
}

/** Settings as flags take them: a=true,b=false. */
export function pairs(settings: Readonly<Record<string, boolean>>): string {
  return Object.entries(settings)
    .map(([key, value]) => `${key}=${value}`)
    .join(",");
}
