import { configHashOf, digestOf, type Encryption, PLAIN_TEXT } from "./encryption-configuration.ts";
import { identityOf } from "./identity-leases.ts";

/** What the metrics of an API server tell of its configuration. */
export interface ShownConfig {
  /** Its host name, as the identity Lease has it. */
  readonly name: string;
  readonly encryption: Encryption;
  /** How often it read another configuration since it started. */
  readonly reloads: number;
}

const RELOADS = "apiserver_encryption_config_controller_automatic_reloads_total";
const INFO = "apiserver_encryption_config_controller_last_config_info";
const HELP = `\
# HELP ${INFO} [ALPHA] Information about the last applied encryption configuration with hash as label, split by apiserver identity.
# TYPE ${INFO} gauge
`;
const RELOADS_HELP = `\
# HELP ${RELOADS} [ALPHA] Total number of reload successes and failures of encryption configuration split by apiserver identity.
# TYPE ${RELOADS} counter
`;

/**
 * The lines of `/metrics` that tell it; none without a configuration. The counter is there once something was counted.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/server/options/encryptionconfig/metrics/metrics.go
 */
export function encryptionMetricsOf({ encryption, name, reloads }: ShownConfig): string {
  if (encryption === PLAIN_TEXT) return "";
  const server = `apiserver_id_hash="${serverHashOf(name)}"`;
  const counted = reloads === 0 ? "" : `${RELOADS_HELP}${RELOADS}{${server},status="success"} ${reloads}\n`;
  return `${counted}${HELP}${INFO}{${server},hash="${configHashOf(encryption)}"} 1\n`;
}

const servers = new Map<string, string>();

function serverHashOf(host: string): string {
  let hash = servers.get(host);
  if (hash === undefined) servers.set(host, (hash = digestOf(identityOf(host))));
  return hash;
}
