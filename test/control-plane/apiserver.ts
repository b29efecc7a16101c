import { writeFileSync } from "node:fs";
import { join } from "node:path";

import { askedFeatureGates } from "./features.ts";
import { featureGateArgs, filesIn, pairs } from "./flags.ts";

/** What can be set for each apiserver on its own. */
export interface ApiserverOptions {
  /** They win over those that {@link askedFeatureGates} names for all. @default none */
  readonly featureGates?: Readonly<Record<string, boolean>>;
  /** Such as `{ "internal.apiserver.k8s.io/v1alpha1": true }`. @default none */
  readonly runtimeConfig?: Readonly<Record<string, boolean>>;
  /** Such as "1.33". @default the apiserver's own version */
  readonly emulatedVersion?: string;
  /** The text of an EncryptionConfiguration. @default no encryption at rest */
  readonly encryptionConfig?: string;
  /** A Go duration, "0" for never. @default "5m", the apiserver's own */
  readonly compactionInterval?: string;
  /** A Go duration. @default "60s", the apiserver's own */
  readonly requestTimeout?: string;
  /**
   * Runs it under a host name of its own, and so under an identity of its own: the identity (and with it the Lease and
   * the StorageVersion entry) is a hash of the host name, which apiservers on one machine share otherwise. Linux only,
   * by unshare(1) with user namespaces or as root.
   * @default the machine's
   */
  readonly hostname?: string;
  /**
   * Its working directory, as where a KMS plugin has its socket. Takes effect with a `hostname` alone, as `unshare` runs a shell.
   * @default that of this process
   */
  readonly cwd?: string;
  /** Where it reaches etcd, such as through a relay. @default the etcd of the control plane */
  readonly etcdUrl?: string;
  /** Further flags; a flag given here wins over the same one above, where it takes one value. @default none */
  readonly extraArgs?: readonly string[];
}

/** Where one apiserver runs. */
export interface ApiserverPlace {
  readonly dir: string;
  readonly index: number;
  readonly port: number;
  readonly etcdUrl: string;
}

export interface Command {
  readonly command: string;
  readonly args: readonly string[];
}

/** The command that runs an apiserver; writes the encryption configuration, if there is one, into the folder. */
export function apiserverCommand(program: string, place: ApiserverPlace, options: ApiserverOptions): Command {
  const args = [
    ...placeArgs({ ...place, etcdUrl: options.etcdUrl ?? place.etcdUrl }),
    ...encryptionArgs(place, options.encryptionConfig),
    ...optionArgs(options),
  ];
  if (options.hostname === undefined) return { command: program, args };
  // Each step replaces the one before it, so that the process id stays that of the apiserver.
  const script = 'hostname "$0" && cd "$1" && shift && exec "$@"';
  const isRoot = process.getuid?.() === 0;
  const namespaces = isRoot ? ["--uts"] : ["--uts", "--user", "--map-root-user"];
  const { cwd = ".", hostname } = options;
  return { command: "unshare", args: [...namespaces, "sh", "-c", script, hostname, cwd, program, ...args] };
}

function encryptionArgs({ dir, index }: ApiserverPlace, config: string | undefined): string[] {
  if (config === undefined) return [];
  const path = join(dir, `encryption-${index}.yaml`);
  writeFileSync(path, config, { mode: 0o600 });
  return [`--encryption-provider-config=${path}`];
}

function placeArgs({ dir, port, etcdUrl }: ApiserverPlace): string[] {
  const files = filesIn(dir);
  return [
    "--bind-address=127.0.0.1",
    `--secure-port=${port}`,
    "--advertise-address=127.0.0.1",
    // EndpointSlices cannot hold loopback addresses; without this the lease reconciler fails every ten seconds.
    "--endpoint-reconciler-type=none",
    `--etcd-servers=${etcdUrl}`,
    `--tls-cert-file=${files.certificate}`,
    `--tls-private-key-file=${files.privateKey}`,
    `--token-auth-file=${files.tokens}`,
    "--authorization-mode=RBAC",
    "--service-cluster-ip-range=10.0.0.0/24",
    "--service-account-issuer=https://kubernetes.default.svc",
    `--service-account-key-file=${files.serviceAccountPublicKey}`,
    `--service-account-signing-key-file=${files.serviceAccountKey}`,
  ];
}

function optionArgs(options: ApiserverOptions): string[] {
  const args: string[] = [...featureGateArgs({ ...askedFeatureGates(), ...options.featureGates })];
  if (options.runtimeConfig) args.push(`--runtime-config=${pairs(options.runtimeConfig)}`);
  if (options.emulatedVersion) args.push(`--emulated-version=${options.emulatedVersion}`);
  if (options.compactionInterval) args.push(`--etcd-compaction-interval=${options.compactionInterval}`);
  if (options.requestTimeout) args.push(`--request-timeout=${options.requestTimeout}`);
  return [...args, ...(options.extraArgs ?? [])];
}
