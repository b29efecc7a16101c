import { instanceIn } from "./server-instance.ts";

/** How one API server encrypts, as its /metrics say it in one answer. */
export interface ShownEncryption {
  /** `sha256:` and the digest of the name of its identity Lease, see {@link serverIdHashOf}; empty where it has none. */
  readonly serverIdHash: string;
  /** `sha256:` and the digest of the EncryptionConfiguration that it encrypts with. */
  readonly configHash: string;
  /** The digest of the key that each KMS v2 plugin named last, by the name of the plugin. */
  readonly keys: ReadonlyMap<string, string>;
  /**
   * Changes with everything that the API server did to its encryption: its process, its reloads, and which keys a plugin ever
   * named, and when it last named those that are old. Where it is the same at two looks, nothing changed and changed back
   * between them.
   */
  readonly history: string;
}

/** The metric that tells which EncryptionConfiguration is in use. */
export const CONFIG_INFO = "apiserver_encryption_config_controller_last_config_info";
const RELOADS = "apiserver_encryption_config_controller_automatic_reloads_total";
const KEY_SEEN = "apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds";
/** A KMS v1 plugin shows its key nowhere, and no object is stale to an API server when that key changes. */
const KMS_V1_GATE = /^kubernetes_feature_enabled\{(?:[^}]*,)?name="KMSv1"[^}]*\} 1$/;

const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;
const HASH = /^sha256:[0-9a-f]{64}$/;
/** An API server keeps a hundred keys. An answer with more is not one of an API server that can be judged. */
const MAX_SERIES = 1_000;

const ABSENT =
  `its /metrics do not show ${CONFIG_INFO}: it runs without --encryption-provider-config, or it is older than ` +
  "Kubernetes 1.34";

const KMS_V1 = "its feature gate KMSv1 is on, and nothing shows which key a KMS v1 plugin uses: go over to KMS v2";

const UNLIKE = "its /metrics show encryption keys in a way that no API server does";

interface Sample {
  readonly labels: ReadonlyMap<string, string>;
  readonly value: string;
}

/**
 * Reads how an API server encrypts off its metrics, which are handed over line by line. The text is not trusted: a line that
 * is not as the API server writes it makes the answer tell nothing.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/server/options/encryptionconfig/metrics/metrics.go
 */
export class EncryptionMetrics {
  readonly #configs: Sample[] = [];
  readonly #reloads: string[] = [];
  readonly #keys: Sample[] = [];
  #hasKmsV1 = false;
  #instance: string | undefined;
  #problem: string | undefined;

  /** Takes one line. */
  add(line: string): void {
    this.#instance ??= instanceIn(line);
    this.#hasKmsV1 ||= KMS_V1_GATE.test(line);
    if (line.startsWith(`${CONFIG_INFO}{`)) {
      this.#keep(this.#configs, sampleOf(line));
    } else if (line.startsWith(`${KEY_SEEN}{`)) {
      this.#keep(this.#keys, sampleOf(line));
    } else if (line.startsWith(`${RELOADS}{`) && line.includes('status="success"')) {
      this.#keep(this.#reloads, line);
    }
  }

  /** Whether the API server says nothing of an EncryptionConfiguration at all, or nothing that tells the key. */
  get isAbsent(): boolean {
    return this.#hasKmsV1 || this.#configs.length === 0;
  }

  /** What the lines say, or why they tell nothing, in words. */
  result(): ShownEncryption | string {
    const [config, ...others] = this.#configs;
    if (this.#hasKmsV1) {
      return KMS_V1;
    }
    if (config === undefined) {
      return ABSENT;
    }
    const [configHash, serverIdHash] = [labelOf(config, "hash"), labelOf(config, "apiserver_id_hash")];
    const isWhole = others.length === 0 && config.value === "1" && HASH.test(configHash) && isIdHash(serverIdHash);
    if (this.#instance === undefined || !isWhole || this.#problem !== undefined) {
      return (
        this.#problem ?? `its /metrics do not show ${CONFIG_INFO} and process_start_time_seconds as an API server does`
      );
    }
    const keys = newestKeysOf(this.#keys);
    const history = this.#history(this.#instance, configHash, keys);
    return { configHash, serverIdHash, keys: keys.newest, history };
  }

  #history(instance: string, configHash: string, { newest, older }: Keys): string {
    const reloads = this.#reloads.toSorted();
    return JSON.stringify([instance, configHash, reloads, [...newest].toSorted(byText), [...older].toSorted(byText)]);
  }

  #keep<T>(kept: T[], one: T | undefined): void {
    if (one === undefined || kept.length >= MAX_SERIES) {
      this.#problem = UNLIKE;
      return;
    }
    kept.push(one);
  }
}

interface Keys {
  readonly newest: ReadonlyMap<string, string>;
  /** Each with when it was last named, as the API server wrote it: a key that is not in use is not named again. */
  readonly older: readonly string[];
}

/** The series of a key stays when another key took its place: the one that was named last counts. */
function newestKeysOf(samples: readonly Sample[]): Keys {
  const newest = new Map<string, { readonly key: string; readonly at: number }>();
  for (const sample of samples) {
    const [provider, key] = [labelOf(sample, "provider_name"), labelOf(sample, "key_id_hash")];
    const at = Number(sample.value);
    if (at > (newest.get(provider)?.at ?? Number.NEGATIVE_INFINITY)) {
      newest.set(provider, { key, at });
    }
  }
  const isNewest = (sample: Sample): boolean =>
    newest.get(labelOf(sample, "provider_name"))?.key === labelOf(sample, "key_id_hash");
  const older = samples
    .filter((sample) => !isNewest(sample))
    .map(({ labels, value }) => JSON.stringify([...labels, value]));
  return { newest: new Map([...newest].map(([provider, { key }]) => [provider, key])), older };
}

function sampleOf(line: string): Sample | undefined {
  const end = line.lastIndexOf("} ");
  const value = line.slice(end + 2);
  if (end === -1 || !Number.isFinite(Number(value)) || value.trim() === "") {
    return undefined;
  }
  const pairs = [...line.slice(line.indexOf("{") + 1, end).matchAll(LABEL)];
  return { labels: new Map(pairs.map(([, name = "", text = ""]) => [name, text])), value };
}

function labelOf({ labels }: Sample, name: string): string {
  return labels.get(name) ?? "";
}

/** An API server without an identity shows none. */
function isIdHash(text: string): boolean {
  return text === "" || HASH.test(text);
}

function byText(a: unknown, b: unknown): number {
  return String(a).localeCompare(String(b));
}
