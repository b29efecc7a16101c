import type { FreezePolicy } from "../freeze/freeze-policy.ts";
import { MANAGED_LABELS } from "../freeze/guard.ts";
import { bindEverywhere, matchCrdUpdates } from "../freeze/match-crd-updates.ts";
import {
  ALLOWED_EXPRESSION,
  BY_RUN_EXPRESSION,
  byToolExpression,
  IN_TREE_EXPRESSION,
  IN_TREE_SUCCEEDED_EXPRESSION,
  MESSAGE_EXPRESSION,
  REMOVED_EXPRESSION,
  REMOVES_EXPRESSION,
  RESTORED_EXPRESSION,
} from "./prune-cel.ts";

/** What the guard does with an update that removes a version: it lets it pass with a warning, or denies it. */
export const PRUNE_GUARD_MODES = ["warn", "deny"] as const;
/** One of {@link PRUNE_GUARD_MODES}. */
export type PruneGuardMode = (typeof PRUNE_GUARD_MODES)[number];

/** What an administrator chooses. */
export interface PruneGuardOptions {
  readonly mode: PruneGuardMode;
  /** Names of users whose prunes are taken for right. */
  readonly allowedUsers: readonly string[];
}

/** Names of the policies, and of their bindings. */
export const PRUNE_POLICY_NAMES = {
  /** Removals that nothing says are right. */
  unproven: "ksvm-stored-versions",
  /** Removals of the in-tree controller after a migration that it says has succeeded. */
  inTree: "ksvm-stored-versions-in-tree",
  /** Puts back what the in-tree controller removes where no migration has succeeded. */
  restore: "ksvm-stored-versions-restore",
} as const;

/** The condition that lists the tools of the administrator. */
export const TOOLS_CONDITION = "not-by-a-listed-tool";

const API_VERSION = "admissionregistration.k8s.io/v1";

/**
 * The policies that watch over `status.storedVersions`. A removal is judged on the update itself: no API server asks a
 * webhook for it, so that it works where nothing of ksvm runs.
 */
export function prunePolicies({ mode, allowedUsers }: PruneGuardOptions): readonly FreezePolicy[] {
  const unproven = {
    removes: REMOVES_EXPRESSION,
    "not-by-a-run": not(BY_RUN_EXPRESSION),
    "not-allowed": not(ALLOWED_EXPRESSION),
    [TOOLS_CONDITION]: not(byToolExpression(allowedUsers)),
  };
  const isInTreeSuccess = `${IN_TREE_EXPRESSION} && ${IN_TREE_SUCCEEDED_EXPRESSION}`;
  return [
    validatingPolicy(PRUNE_POLICY_NAMES.unproven, {
      mode,
      conditions: { ...unproven, "not-after-a-success": not(isInTreeSuccess) },
    }),
    validatingPolicy(PRUNE_POLICY_NAMES.inTree, {
      mode: "warn",
      conditions: { ...unproven, "after-a-success": isInTreeSuccess },
    }),
  ];
}

/**
 * What puts back the versions that the in-tree controller removes where no migration has succeeded, where MutatingAdmissionPolicies are
 * served: where its update is denied, it tries again for all time, and the CRD stays frozen by its condition StorageMigrating.
 */
export function restorePolicy({ allowedUsers }: Pick<PruneGuardOptions, "allowedUsers">): FreezePolicy<"Mutating"> {
  const name = PRUNE_POLICY_NAMES.restore;
  const metadata = { name, labels: MANAGED_LABELS };
  const conditions = {
    removes: REMOVES_EXPRESSION,
    "not-after-a-success": `${IN_TREE_EXPRESSION} && !(${IN_TREE_SUCCEEDED_EXPRESSION})`,
    "not-allowed": not(ALLOWED_EXPRESSION),
    [TOOLS_CONDITION]: not(byToolExpression(allowedUsers)),
  };
  const expression = `[JSONPatch{op: "replace", path: "/status/storedVersions", value: ${RESTORED_EXPRESSION}}]`;
  return {
    policy: {
      apiVersion: API_VERSION,
      kind: "MutatingAdmissionPolicy",
      metadata,
      spec: {
        failurePolicy: "Fail",
        paramKind: undefined,
        reinvocationPolicy: "Never",
        matchConstraints: MATCH,
        matchConditions: listOf(conditions),
        variables: undefined,
        mutations: [{ patchType: "JSONPatch", jsonPatch: { expression } }],
      },
    },
    binding: { apiVersion: API_VERSION, kind: "MutatingAdmissionPolicyBinding", metadata, spec: bindEverywhere(name) },
  };
}

const MATCH = matchCrdUpdates(["customresourcedefinitions/status"]);

/** CEL by its name in `matchConditions`. */
type Conditions = Readonly<Record<string, string>>;

interface Judgment {
  readonly mode: PruneGuardMode;
  /** An update that all of them are true of is warned about or denied. */
  readonly conditions: Conditions;
}

function validatingPolicy(name: string, { mode, conditions }: Judgment): FreezePolicy {
  const metadata = { name, labels: MANAGED_LABELS };
  return {
    policy: {
      apiVersion: API_VERSION,
      kind: "ValidatingAdmissionPolicy",
      metadata,
      spec: {
        // The first condition is false for every other update of a status, and the others are not looked at then.
        failurePolicy: mode === "deny" ? "Fail" : "Ignore",
        paramKind: undefined,
        matchConstraints: MATCH,
        matchConditions: listOf(conditions),
        variables: [{ name: "removed", expression: REMOVED_EXPRESSION }],
        validations: [
          {
            expression: "false",
            reason: "Forbidden",
            message: "status.storedVersions would lose a version that objects may still be stored in",
            messageExpression: MESSAGE_EXPRESSION,
          },
        ],
        auditAnnotations: undefined,
      },
    },
    binding: {
      apiVersion: API_VERSION,
      kind: "ValidatingAdmissionPolicyBinding",
      metadata,
      spec: { ...bindEverywhere(name), validationActions: mode === "deny" ? ["Deny", "Audit"] : ["Warn", "Audit"] },
    },
  };
}

function listOf(conditions: Conditions): readonly { readonly name: string; readonly expression: string }[] {
  return Object.entries(conditions).map(([name, expression]) => ({ name, expression }));
}

function not(expression: string): string {
  return `!(${expression})`;
}
