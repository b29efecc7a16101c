import { createHash } from "node:crypto";
import { ApiServerMissing, readMetrics } from "../apiservers/find.ts";
import { KsvmError, messageOf } from "../errors.ts";
import type { Client } from "../kube/client.ts";
import { isForbidden } from "../kube/errors.ts";
import { retry } from "../kube/retry.ts";
import type { Evidence } from "../migrator/migrate-built-in.ts";

// What API servers say about how they encrypt. They say it on /metrics alone: see docs/decisions/0014.

/** Which EncryptionConfiguration is meant. */
export interface EncryptionWish {
  /** Its digest, as API servers show it: see `configDigestOf`. @default any that all of them use */
  readonly expectedConfig?: string | undefined;
  /** Where the user named it, for messages. @default `--expect-config` */
  readonly namedBy?: string;
}

/**
 * An API server names a new key of a KMS v2 plugin before it encrypts with it. Where the plugin does not encrypt with
 * the new key, the one before is used for up to three minutes more (`kmsv2PluginWriteDEKSourceMaxTTL`).
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/server/options/encryptionconfig/config.go
 */
const KMS_LAG_MS = 180_000;

/**
 * The evidence that a re-encryption rests on: every API server uses one and the same EncryptionConfiguration and the
 * same key of each KMS v2 plugin, and changes neither until the end.
 *
 * The question that it returns throws {ApiServerMissing}, which is waited for, where an API server does not use the
 * expected configuration yet, and where its KMS plugin does not work; {KsvmError} EncryptionUnknown where it does not
 * tell what it uses; Forbidden.
 */
export function encryptionEvidence({
  expectedConfig,
  namedBy = "--expect-config",
}: EncryptionWish = {}): (apiServer: Client, signal: AbortSignal) => Promise<Evidence> {
  /** When an API server first showed this, on the monotonic clock. */
  const firstShown = new Map<string, number>();
  return async (apiServer, signal) => {
    const { address, clock } = apiServer;
    const shown = encryptionIn(await readLines(apiServer, signal));
    if (typeof shown === "string") {
      const text = `${address} does not show which encryption configuration it uses: ${shown}`;
      throw new KsvmError("EncryptionUnknown", `Cannot tell which key objects have: ${text}; see docs/reencryption.md`);
    }
    const { configHash, keys, own } = shown;
    if (expectedConfig !== undefined && configHash !== expectedConfig) {
      const text = `it uses encryption configuration ${configHash}, which is not ${expectedConfig} of ${namedBy}`;
      throw new ApiServerMissing(`${address}: ${text}`);
    }
    const named = [...keys].map(([plugin, key]) => ` with key ${key} of KMS plugin "${plugin}"`);
    const evidence = { alike: `encryption configuration ${configHash}${named.toSorted().join("")}`, own };
    if (keys.size === 0) return evidence;
    // After its metrics: the check that has an API server show a key is the one that its health is of.
    await assertKmsWorks(apiServer, signal);
    const since = firstShown.get(own) ?? clock.monotonic();
    firstShown.set(own, since);
    return { ...evidence, holdsFrom: since + KMS_LAG_MS };
  };
}

/** The digest of the EncryptionConfiguration in the epoch of a result; `undefined` where it rests on none. */
export function configurationOf(epoch = ""): string | undefined {
  return /encryption configuration (sha256:[0-9a-f]{64})/.exec(epoch)?.[1];
}

/** The metric that tells which EncryptionConfiguration is in use. */
const CONFIG_INFO = "apiserver_encryption_config_controller_last_config_info";
const RELOADS = "apiserver_encryption_config_controller_automatic_reloads_total";
const KEY_SHOWN = "apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds";
/** A KMS v1 plugin shows its key nowhere, and no object is stale to an API server when that key changes. */
const KMS_V1_GATE = /^kubernetes_feature_enabled\{(?:[^}]*,)?name="KMSv1"[^}]*\} 1$/;

/** The lines that {@link encryptionIn} reads. The metrics of an API server have some ten thousand others. */
async function readLines(apiServer: Client, signal: AbortSignal): Promise<readonly string[]> {
  const read = async (): Promise<readonly string[]> => {
    const lines: string[] = [];
    await readMetrics(apiServer, signal, (line) => {
      const counts = [CONFIG_INFO, RELOADS, KEY_SHOWN].some((name) => line.startsWith(`${name}{`));
      if (counts || KMS_V1_GATE.test(line)) lines.push(line);
    });
    return lines;
  };
  try {
    return await retry(apiServer, read, { signal, forMs: 10_000 });
  } catch (error) {
    if (!isForbidden(error)) throw error;
    const text = 'this user may not get the nonResourceURL "/metrics"; grant that';
    throw new KsvmError("Forbidden", `Cannot tell which key objects have: ${text}`);
  }
}

/** How one API server encrypts. */
interface ShownEncryption {
  /** `sha256:` and the digest of the EncryptionConfiguration that it uses. */
  readonly configHash: string;
  /** The digest of the key that each KMS v2 plugin named last, by the name of the plugin. */
  readonly keys: ReadonlyMap<string, string>;
  /**
   * Changes with everything that the API server did to its encryption: its reloads, which keys a plugin ever named, and
   * when it last named those that are old. Where it is the same at two looks, nothing changed and changed back between
   * them.
   */
  readonly own: string;
}

const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;
const HASH = /^sha256:[0-9a-f]{64}$/;

/**
 * Reads how an API server encrypts off the lines of its metrics. Lines that are not as an API server writes them tell
 * nothing.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/server/options/encryptionconfig/metrics/metrics.go
 *
 * @returns or why they tell nothing, in words
 */
export function encryptionIn(lines: readonly string[]): ShownEncryption | string {
  const all = (metric: string): readonly string[] => lines.filter((line) => line.startsWith(`${metric}{`));
  if (lines.some((line) => KMS_V1_GATE.test(line))) {
    return "its feature gate KMSv1 is on, and nothing shows which key a KMS v1 plugin uses: go over to KMS v2";
  }
  const [config, ...others] = all(CONFIG_INFO).map(sampleIn);
  if (config === undefined) {
    const why = "it runs without --encryption-provider-config, or it is older than Kubernetes 1.34";
    return `its /metrics do not show ${CONFIG_INFO}: ${why}`;
  }
  const { apiserver_id_hash: server = "", hash: configHash = "" } = config.labels;
  if (others.length > 0 || config.value !== 1 || !HASH.test(configHash)) {
    return `its /metrics do not show ${CONFIG_INFO} as an API server does`;
  }

  // The series of a key stays where another key took its place: the one that was named last counts.
  const named = all(KEY_SHOWN)
    .map(sampleIn)
    .toSorted((a, b) => a.value - b.value);
  if (named.some(({ labels, value }) => !HASH.test(labels["key_id_hash"] ?? "") || Number.isNaN(value))) {
    return `its /metrics do not show ${KEY_SHOWN} as an API server does`;
  }
  const keys = new Map(named.map(({ labels }) => [labels["provider_name"] ?? "", labels["key_id_hash"] ?? ""]));
  // A key that is in use is named again every minute.
  const former = named.filter(({ labels }) => keys.get(labels["provider_name"] ?? "") !== labels["key_id_hash"]);
  const reloads = all(RELOADS).filter((line) => line.includes('status="success"'));
  const parts = [former.map(({ labels, value }) => [labels["provider_name"], labels["key_id_hash"], value]), [...keys]];
  const sorted = [...parts.flat().map((one) => JSON.stringify(one)), ...reloads].toSorted();
  const own = createHash("sha256")
    .update(JSON.stringify([server, configHash, sorted]))
    .digest("hex");
  return { configHash, keys, own };
}

function sampleIn(line: string): { readonly labels: Readonly<Record<string, string>>; readonly value: number } {
  const end = line.lastIndexOf("} ");
  const pairs = [...line.slice(line.indexOf("{") + 1, end).matchAll(LABEL)];
  const value = line.slice(end + 2).trim();
  return {
    labels: Object.fromEntries(pairs.map(([, name = "", text = ""]) => [name, text])),
    value: value === "" ? Number.NaN : Number(value),
  };
}

/**
 * Makes sure that an API server encrypts with the key that its metrics show. It notes a key as soon as the plugin names
 * it, and goes on with the one before where the plugin cannot encrypt with it: no object is stale to it then, and none
 * is written again. Its health check fails in that case.
 *
 * @throws {ApiServerMissing} where it fails, which may pass; {KsvmError} EncryptionUnknown where there is no such check
 */
async function assertKmsWorks(apiServer: Client, signal: AbortSignal): Promise<void> {
  const { address } = apiServer;
  const options = { query: { verbose: true }, accept: "text/plain", signal };
  let text: string;
  try {
    ({ text } = await apiServer.answer("GET", "/healthz", options, { isStream: false }));
  } catch (error) {
    signal.throwIfAborted();
    const why = `its /healthz does not say that its KMS plugins encrypt with the keys that they name: ${messageOf(error)}`;
    throw new ApiServerMissing(`${address}: ${why}`);
  }
  // `kms-provider-0` and so on, or `kms-providers` where the configuration is read again by itself.
  if (text.includes("[+]kms-provider")) return;
  const why = `the /healthz of ${address} does not show its KMS plugins; see docs/reencryption.md`;
  throw new KsvmError("EncryptionUnknown", `Cannot tell which key objects have: ${why}`);
}
