import { type HookClientConfig, hookUrlOf } from "./crd-registry.ts";
import type { ModelObject } from "./model-object.ts";
import type { ServedKind } from "./served-kinds.ts";
import type { EtcdEntry } from "./timeline.ts";

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
  /** Base64 of PEM; `undefined` where it is not set. */
  readonly caBundle: string | undefined;
  readonly rules: readonly Rule[];
  readonly matchConditions: readonly { readonly expression: string }[];
  readonly isIgnoredOnFailure: boolean;
  readonly timeoutSeconds: number;
  readonly isDryRunSafe: boolean;
}

/** A ValidatingAdmissionPolicy with one of its bindings. */
export interface BoundPolicy {
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
  readonly clientConfig: HookClientConfig;
  readonly rules?: readonly Rule[];
  readonly matchConditions?: readonly { readonly expression: string }[];
  readonly failurePolicy?: string;
  readonly timeoutSeconds?: number;
  readonly sideEffects?: string;
}

function hookOf(hook: ModelHook): Hook {
  const {
    clientConfig,
    failurePolicy,
    matchConditions = [],
    name,
    rules = [],
    sideEffects,
    timeoutSeconds = 10,
  } = hook;
  return {
    name,
    rules,
    matchConditions,
    timeoutSeconds,
    url: hookUrlOf(clientConfig),
    caBundle: clientConfig.caBundle,
    isIgnoredOnFailure: failurePolicy === "Ignore",
    isDryRunSafe: sideEffects === "None" || sideEffects === "NoneOnDryRun",
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
