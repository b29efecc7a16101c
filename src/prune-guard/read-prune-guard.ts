import { listIn, objectIn, textIn } from "../api/json-fields.ts";
import { type PruneGuardOptions, TOOLS_CONDITION } from "./prune-policies.ts";

/**
 * What an administrator chose, read from the policy and the binding that judge removals; `undefined` where one is missing. Whether
 * both are as they are to be is for the comparison with what these options stand for.
 */
export function readPruneGuard(policy: unknown, binding: unknown): PruneGuardOptions | undefined {
  if (policy === undefined || binding === undefined) {
    return undefined;
  }
  const conditions = listIn(specOf(policy)?.["matchConditions"]).map(objectIn);
  const tools = conditions.find((condition) => condition?.["name"] === TOOLS_CONDITION);
  return {
    mode: listIn(specOf(binding)?.["validationActions"]).includes("Deny") ? "deny" : "warn",
    allowedUsers: usersIn(textIn(tools?.["expression"]) ?? ""),
  };
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
