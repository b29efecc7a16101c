import type { ModelIo, ServerClock } from "./answers.ts";
import type { EtcdEntry, ModelObject, SimEtcd } from "./etcd.ts";
import { type CrdRegistry, type Release, type ServedKind } from "./kinds.ts";
import { createHash } from "node:crypto";

/** What a write is, as admission sees it. */
export type AdmissionOperation = "CREATE" | "UPDATE" | "DELETE";

interface Rule {
  readonly apiGroups: readonly string[];
  readonly apiVersions: readonly string[];
  readonly operations: readonly string[];
  readonly resources: readonly string[];
  readonly resourceNames?: readonly string[];
  readonly scope?: string;
}

/** One webhook of a configuration. */
export interface Hook {
  readonly name: string;
  readonly url: string;
  readonly rules: readonly Rule[];
  readonly matchConditions: readonly { readonly expression: string }[];
  readonly isIgnoredOnFailure: boolean;
  readonly timeoutSeconds: number;
}

/** A ValidatingAdmissionPolicy with one of its bindings. */
interface BoundPolicy {
  readonly name: string;
  readonly binding: string;
  readonly rules: readonly Rule[];
  readonly matchConditions: readonly { readonly expression: string }[];
  readonly validations: readonly {
    readonly expression: string;
    readonly reason?: string;
    readonly message?: string;
    readonly messageExpression?: string;
  }[];
  readonly isDenying: boolean;
}

const ROOT = "/registry/";
const [VALIDATING, MUTATING] = [`${ROOT}validatingwebhookconfigurations/`, `${ROOT}mutatingwebhookconfigurations/`];
const [POLICIES, BINDINGS] = [`${ROOT}validatingadmissionpolicies/`, `${ROOT}validatingadmissionpolicybindings/`];

/** Where etcd has what decides on admission. */
export const ADMISSION_PREFIXES: readonly string[] = [VALIDATING, MUTATING, POLICIES, BINDINGS];

/** What one API server knows of webhook configurations and policies. It follows when it is told to. */
export class AdmissionRegistry {
  #validating: readonly Hook[] = [];
  #mutating: readonly Hook[] = [];
  #policies: readonly BoundPolicy[] = [];

  get validating(): readonly Hook[] {
    return this.#validating;
  }

  get mutating(): readonly Hook[] {
    return this.#mutating;
  }

  get policies(): readonly BoundPolicy[] {
    return this.#policies;
  }

  /** Takes what there is now. @param range all entries under a prefix */
  follow(range: (prefix: string) => readonly EtcdEntry[]): void {
    this.#validating = range(VALIDATING).flatMap(hooksOf);
    this.#mutating = range(MUTATING).flatMap(hooksOf);
    const policies = new Map(range(POLICIES).map(({ object }) => [object.metadata.name, object]));
    this.#policies = range(BINDINGS).flatMap(({ object }) => {
      const { policyName } = object["spec"] as { policyName: string };
      const policy = policies.get(policyName);
      return policy === undefined ? [] : [boundPolicyOf(policy, object)];
    });
  }
}

/** Whether the rules of a webhook or policy match an operation on an object. */
export function isMatched(
  rules: readonly Rule[],
  kind: Pick<ServedKind, "group" | "resource" | "namespaced">,
  { name, operation, subresource }: { name: string; operation: AdmissionOperation; subresource: string | undefined },
): boolean {
  // The versions do not count: matchPolicy is Equivalent, and every version of a resource is equivalent to the others.
  return rules.some((rule) => {
    const isKind = has(rule.apiGroups, kind.group) && isResourceMatched(rule.resources, kind.resource, subresource);
    const isScope =
      !(rule.scope === "Cluster" && kind.namespaced) && !(rule.scope === "Namespaced" && !kind.namespaced);
    const isNamed = rule.resourceNames === undefined || rule.resourceNames.includes(name);
    return isKind && isScope && isNamed && has(rule.operations, operation);
  });
}

function isResourceMatched(resources: readonly string[], resource: string, subresource = ""): boolean {
  return resources.some((pattern) => {
    const [wanted = "", sub = ""] = pattern.split("/");
    return (wanted === "*" || wanted === resource) && (sub === subresource || sub === "*");
  });
}

function has(values: readonly string[], value: string): boolean {
  return values.includes("*") || values.includes(value);
}

const hooksOfEntries = new WeakMap<EtcdEntry, readonly Hook[]>();

function hooksOf(entry: EtcdEntry): readonly Hook[] {
  let hooks = hooksOfEntries.get(entry);
  if (hooks === undefined) {
    hooks = ((entry.object["webhooks"] ?? []) as ModelHook[]).map(hookOf);
    hooksOfEntries.set(entry, hooks);
  }
  return hooks;
}

interface ModelHook {
  readonly name: string;
  readonly clientConfig: { readonly url: string };
  readonly rules?: readonly Rule[];
  readonly matchConditions?: readonly { readonly expression: string }[];
  readonly failurePolicy?: string;
  readonly timeoutSeconds?: number;
}

function hookOf(hook: ModelHook): Hook {
  const { clientConfig, failurePolicy, matchConditions = [], name, rules = [], timeoutSeconds = 10 } = hook;
  return {
    name,
    rules,
    matchConditions,
    timeoutSeconds,
    url: clientConfig.url,
    isIgnoredOnFailure: failurePolicy === "Ignore",
  };
}

function boundPolicyOf(policy: ModelObject, binding: ModelObject): BoundPolicy {
  const {
    matchConditions = [],
    matchConstraints,
    validations = [],
  } = policy["spec"] as {
    matchConditions?: BoundPolicy["matchConditions"];
    matchConstraints: { resourceRules?: readonly Rule[] };
    validations?: BoundPolicy["validations"];
  };
  const { validationActions } = binding["spec"] as { validationActions: readonly string[] };
  return {
    name: policy.metadata.name ?? "",
    binding: binding.metadata.name ?? "",
    matchConditions,
    validations,
    rules: matchConstraints.resourceRules ?? [],
    isDenying: validationActions.includes("Deny"),
  };
}

/** Which keys an API server encrypts with. */
export interface Encryption {
  /** 0 is plain text. */
  readonly writes: number;
  readonly reads: ReadonlySet<number>;
  /** The resources that are encrypted, by `resource.group`. */
  readonly resources: ReadonlySet<string>;
}

/** No value is encrypted: the API server has no configuration. */
export const PLAIN_TEXT: Encryption = { writes: 0, reads: new Set([0]), resources: new Set() };

const hashes = new WeakMap<Encryption, string>();

/** The digest of the configuration, as that of its file: `sha256:` and 64 digits. */
export function configHashOf(encryption: Encryption): string {
  let hash = hashes.get(encryption);
  if (hash === undefined) {
    const { reads, resources, writes } = encryption;
    hashes.set(encryption, (hash = digestOf(JSON.stringify([writes, [...reads], [...resources]]))));
  }
  return hash;
}

/** As API servers write digests. */
function digestOf(text: string): string {
  return `sha256:${createHash("sha256").update(text).digest("hex")}`;
}

/** The watch cache of an API server: an older state of etcd. */
export interface WatchCacheState {
  /** What it has followed up to. */
  readonly revision: number;
  /** What it began with, or still has: who watches from before it gets 410. */
  readonly since: number;
}

/** What the parts of one API server share. */
export interface ServerContext {
  readonly etcd: SimEtcd;
  readonly io: ModelIo;
  readonly clock: ServerClock;
  readonly release: Release;
  readonly encryption: Encryption;
  readonly handlers: CrdRegistry;
  readonly discovery: CrdRegistry;
  readonly admission: AdmissionRegistry;
  readonly cache: WatchCacheState;
  /** Objects on a page at most, whatever a client asks for: so few make several pages. */
  readonly pageSize: number;
  /** What its watch of CRDs has followed up to. */
  readonly crdsSeen: number;
  /** Whether its watch cache of CRDs is filled: where it is not, etcd answers a GET, whatever its resourceVersion, and a list by name or a watch gets 429. */
  readonly areCrdsFilled: boolean;
}

/** `metav1.Time`. */
export function timeText(now: number): string {
  const second = Math.floor(now / 1_000);
  if (second !== lastSecond) {
    [lastSecond, lastText] = [second, `${new Date(second * 1_000).toISOString().slice(0, 19)}Z`];
  }
  return lastText;
}

let [lastSecond, lastText] = [Number.NaN, ""];

/** `metav1.MicroTime`. */
function microTimeText(now: number): string {
  return new Date(now).toISOString().replace("Z", "000Z");
}

/** The seconds for which a renewal counts, by default. */
const DURATION_SECONDS = 3_600;

/**
 * The name of the identity Lease of an API server.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/server/config.go
 */
function identityOf(host: string): string {
  let identity = identities.get(host);
  if (identity === undefined) {
    const digest = createHash("sha256").update(host).digest("base64url").toLowerCase();
    identities.set(host, (identity = `apiserver-${digest.replaceAll(/[^a-z0-9]/g, "x").slice(0, 26)}`));
  }
  return identity;
}

/** Each API server asks for its own every 10 seconds. */
const identities = new Map<string, string>();

/** Creates or renews the identity Lease of an API server, as it does at its start and every 10 s. */
export function renewIdentityLease(
  etcd: SimEtcd,
  host: string,
  { process, now }: { readonly process: string; readonly now: number },
): void {
  const name = identityOf(host);
  const key = `/registry/leases/kube-system/${name}`;
  const found = etcd.get(key);
  const spec = {
    holderIdentity: `${name}_${process}`,
    leaseDurationSeconds: DURATION_SECONDS,
    renewTime: microTimeText(now),
  };
  const object: ModelObject = found === undefined ? newLease(etcd, { host, name, now }) : found.object;
  etcd.put(key, { object: { ...object, spec } }, found?.modRevision ?? 0);
}

/** Removes it, as an API server does that shuts down in order. */
export function deleteIdentityLease(etcd: SimEtcd, host: string): void {
  const key = `/registry/leases/kube-system/${identityOf(host)}`;
  const found = etcd.get(key);
  if (found !== undefined) etcd.delete(key, found.modRevision);
}

function newLease(
  etcd: SimEtcd,
  { host, name, now }: { readonly host: string; readonly name: string; readonly now: number },
): ModelObject {
  return {
    apiVersion: "coordination.k8s.io/v1",
    kind: "Lease",
    metadata: {
      name,
      namespace: "kube-system",
      uid: etcd.nextId(),
      creationTimestamp: timeText(now),
      labels: { "apiserver.kubernetes.io/identity": "kube-apiserver", "kubernetes.io/hostname": host },
    },
  };
}

/** What the metrics of an API server tell of its configuration. */
interface ShownConfig {
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
