import { listIn, objectIn, textIn } from "../api/json-fields.ts";
import { type PruneGuardMode, type PruneGuardOptions, TOOLS_CONDITION } from "./prune-policies.ts";

/** Objects of the guard, as far as they are there. */
export interface GuardParts {
  /** What judges removals that nothing says are right. */
  readonly policy: unknown;
  /** The binding of that. */
  readonly binding: unknown;
  /** The policy on the in-tree controller, which has the same users. */
  readonly inTree: unknown;
}

/**
 * What an administrator chose, as the objects tell that are there; `undefined` where neither what judges removals nor its binding is. Whether
 * they are as they are to be is for the comparison with what these options stand for.
 */
export function readPruneGuard({ binding, inTree, policy }: GuardParts): PruneGuardOptions | undefined {
  if (policy === undefined && binding === undefined) {
    return undefined;
  }
  return { mode: modeIn({ binding, policy }), allowedUsers: usersOf(policy ?? inTree) };
}

function modeIn({ binding, policy }: Omit<GuardParts, "inTree">): PruneGuardMode {
  const isDenying =
    binding === undefined
      ? specOf(policy)?.["failurePolicy"] === "Fail"
      : listIn(specOf(binding)?.["validationActions"]).includes("Deny");
  return isDenying ? "deny" : "warn";
}

function usersOf(policy: unknown): readonly string[] {
  const conditions = listIn(specOf(policy)?.["matchConditions"]).map(objectIn);
  const tools = conditions.find((condition) => condition?.["name"] === TOOLS_CONDITION);
  return usersIn(textIn(tools?.["expression"]) ?? "");
}

function specOf(object: unknown): Readonly<Record<string, unknown>> | undefined {
  return objectIn(objectIn(object)?.["spec"]);
}

/** The list in the expression; empty where there is none that can be read. */
function usersIn(expression: string): readonly string[] {
  const [list = "[]"] = /\[.*\]/.exec(expression) ?? [];
  try {
    return listIn(JSON.parse(list)).filter((user) => typeof user === "string");
  } catch {
    return [];
  }
}
